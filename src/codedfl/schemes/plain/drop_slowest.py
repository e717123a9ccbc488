"""Federated learning that ignores stragglers: the server continues after the fastest F replies."""

from collections.abc import Sequence
from typing import final

from codedfl.scenario import InexactOptions
from codedfl.schemes.contract import CountedCosts, Device, Server, check_at_most
from codedfl.schemes.plain.conventional import AveragingServer, PlainScheme, pooled_devices
from codedfl.schemes.plain.counting import counted_rounds
from codedfl.settings import setting
from codedfl.task import Problem, Shard


class DropSlowestOptions(InexactOptions):
    """How many replies the server awaits (F): by default four fifths of the devices.

    >>> DropSlowestOptions(wait_for=20).wait_for
    20
    """

    wait_for: int | None = setting(
        default=None, low=1, help="Number F of replies that finish an epoch; four fifths of the devices if unset."
    )

    def check_fleet(self, devices: int) -> None:
        """Refuse an F above the number of devices."""
        check_at_most(devices, "schemes.drop-slowest.wait_for", self.wait_for)


@final
class DropSlowest(PlainScheme[DropSlowestOptions]):
    """Only the fastest F devices count: epochs are short, but slow devices rarely contribute."""

    name = "drop-slowest"
    options_type = DropSlowestOptions
    exact = False
    follows_timing = True

    @property
    def _wait_for(self) -> int:
        given = self.options.wait_for
        return max(1, self.public.devices * 4 // 5) if given is None else given

    def simulated(self, problem: Problem, epochs: int) -> Sequence[Device]:
        """Prepare devices whose replies are summed in one product."""
        return pooled_devices(self, problem, some_for=epochs)

    def counted(self, shards: Sequence[Shard], epochs: int) -> CountedCosts:
        """Count one device for each shard."""
        return counted_rounds(self, shards, epochs)

    def server(self) -> Server:
        """Prepare a server that awaits the fastest F devices."""
        return AveragingServer(self.public, quorum=self._wait_for)

    @property
    def survives_losses(self) -> int:
        """All but F; the run continues without the data of lost devices."""
        return self.public.devices - self._wait_for
