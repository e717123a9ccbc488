"""Finding 4: pads are fresh only if the server's seed is.

The same seed in two sessions is accepted, and the difference of two parcels reads A - A'.
"""

from typing import Any

import numpy as np
import pytest

from codedfl.deploy.site.session import LocalData, Site
from codedfl.schemes import Message, Transfer
from codedfl.schemes.sharing.sealed import SealedDevice
from fleets import CLASSES, fleet
from security.findings.hostile import HostileServer, relative, wanted
from tiny import problem

GIVEN, LATER = problem([9, 8, 7]), problem([9, 8, 7], seed=1)


def test_the_same_seed_in_two_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The victim's data change in between, as a table does that grows."""
    parcels: list[Message] = []
    export, load = SealedDevice.export, Site.__init__

    def seen(self: SealedDevice, grant: Message, work: Any) -> Message:
        parcels.append(export(self, grant, work))
        return parcels[-1]

    sessions = iter([GIVEN, GIVEN, GIVEN, LATER, LATER, LATER])

    def changing(self: Site, name: str, old: Any, *others: Any, **more: Any) -> None:
        def current(_: Any) -> LocalData:
            number = int(name.removeprefix("device-")) - 1
            return LocalData(next(sessions).shards[number], GIVEN.kind, CLASSES[: GIVEN.shape[1]])

        load(self, name, current, *others, **more)

    monkeypatch.setattr(SealedDevice, "export", seen)
    monkeypatch.setattr(Site, "__init__", changing)
    grant = {"seed": np.arange(32, dtype=np.uint8), "export": np.array(1, np.int64), "moments": np.array(1, np.int8)}
    with fleet(GIVEN) as sites:
        for _ in range(2):
            hostile = HostileServer(sites, wanted("sealed", 3))
            hostile.carry([Transfer(1, 0, grant)])
            form = hostile.scheme.formats.moments
            hostile.channel.end_session()
    first, second = (parcel["moments"] for parcel in parcels)
    found = form.ring.centred(form.ring.subtract(first, second)) * form.data_step
    error = relative(found, LATER.shards[1].moments - GIVEN.shards[1].moments)
    assert error > 1, f"the difference of two parcels reads that of the data to {error:.0e}"
