"""Receipts of parcels: the recipient signs that it has one, so that neither a relay nor the sender can say so.

The server can check them, too: if a parcel is missing that its sender says was accepted, they tell who is wrong.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import final

from codedfl.deploy.protocol.envelopes import DeviceKey, Member, statement, verify
from codedfl.errors import EngineError

_RECEIPT = "codedfl receipt 1"


@final
@dataclass(eq=False)
class Receipts:
    """Signs and checks the receipts of one session. Law: a recipient's sign(sender, ...) passes everyone's check."""

    session: str
    site: str = ""
    """Who signs; the server does not."""
    key: DeviceKey | None = None
    members: Mapping[str, Member] = field(default_factory=dict)
    """The public keys of all sites."""

    def sign(self, sender: str, stage: int, number: int) -> str:
        """Return this site's receipt of a parcel."""
        if self.key is None:
            raise EngineError(f"{self.site} has no key to sign receipts with; name one in its site.toml")
        return self.key.sign(self._statement(sender, self.site, stage, number)).hex()

    def check(self, sender: str, recipient: str, stage: int, number: int, shown: object) -> bool:
        """Return whether the recipient of a parcel has signed what is shown as its receipt."""
        try:
            signature = bytes.fromhex(shown) if isinstance(shown, str) else b""
        except ValueError:
            return False
        told = self._statement(sender, recipient, stage, number)
        return recipient in self.members and verify(self.members[recipient].public, told, signature)

    def _statement(self, sender: str, recipient: str, stage: int, number: int) -> bytes:
        parts = (self.session, sender, recipient, str(stage), str(number))
        return statement(_RECEIPT, *(part.encode() for part in parts))
