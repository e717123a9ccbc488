"""Ignore stragglers: the server goes on as soon as the fastest F devices have replied."""

from typing import final

from codedfl.errors import ScenarioError
from codedfl.scenario import SchemeOptions
from codedfl.schemes.contract import Device, Leakage, Scheme, Server
from codedfl.schemes.conventional import PLAIN_LEAKAGE, AveragingServer, GradientDevice
from codedfl.settings import setting
from codedfl.task import Shard

__all__ = ["DropSlowest"]


class DropSlowestOptions(SchemeOptions):
    """How many replies are awaited (F)."""

    wait_for: int = setting(default=20, low=1)


@final
class DropSlowest(Scheme[DropSlowestOptions]):
    """The fastest F devices only: quick, but the data of slow devices hardly counts."""

    name = "drop-slowest"
    options_type = DropSlowestOptions
    exact = False
    follows_timing = True
    verdict = "not encrypted"

    def check(self) -> None:
        """No more replies can be awaited than there are devices."""
        if self.options.wait_for > self.public.devices:
            raise ScenarioError(
                f"schemes.drop-slowest.wait_for = {self.options.wait_for} must be at most {self.public.devices}, "
                "the number of devices"
            )

    def device(self, index: int, shard: Shard) -> Device:
        """Prepare a device that replies with its gradient."""
        return GradientDevice(shard)

    def server(self) -> Server:
        """Prepare a server that awaits the fastest."""
        return AveragingServer(self.public, self.options.wait_for, lambda epoch: self.public.samples)

    @property
    def survives_losses(self) -> int:
        """All but F: the run goes on, without the data of the lost."""
        return self.public.devices - self.options.wait_for

    def leakage(self) -> Leakage:
        """Single gradients in clear."""
        return PLAIN_LEAKAGE
