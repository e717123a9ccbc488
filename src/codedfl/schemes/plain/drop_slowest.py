"""Ignore stragglers: the server goes on as soon as the fastest F devices have replied."""

from typing import final

from codedfl.scenario import SchemeOptions
from codedfl.schemes.contract import Server, check_at_most
from codedfl.schemes.plain.conventional import AveragingServer, PlainScheme
from codedfl.settings import setting


class DropSlowestOptions(SchemeOptions):
    """How many replies are awaited (F): four fifths of the devices unless given."""

    wait_for: int | None = setting(
        default=None, low=1, help="Number F of replies that finish an epoch; four fifths of the devices if unset."
    )

    def check_fleet(self, devices: int) -> None:
        """No more replies can be awaited than there are devices."""
        check_at_most(devices, "schemes.drop-slowest.wait_for", self.wait_for)


@final
class DropSlowest(PlainScheme[DropSlowestOptions]):
    """The fastest F devices only: quick, but the data of slow devices hardly counts."""

    name = "drop-slowest"
    options_type = DropSlowestOptions
    exact = False
    follows_timing = True

    @property
    def _wait_for(self) -> int:
        given = self.options.wait_for
        return max(1, self.public.devices * 4 // 5) if given is None else given

    def server(self) -> Server:
        """Prepare a server that awaits the fastest."""
        return AveragingServer(self.public, quorum=self._wait_for)

    @property
    def survives_losses(self) -> int:
        """All but F: the run goes on, without the data of the lost."""
        return self.public.devices - self._wait_for
