"""Emulation of a slow device behind slow links by a real site, so that a whole fleet fits on one machine.

Seconds come from the delay model with the random numbers of a simulation of the same seed and draw, so every step of a
site takes as long as in virtual time. With ``time_scale`` 0.01 a hundred seconds pass in one. Without ``links`` only
computing is slowed, for networks that are slow themselves.
"""

from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from codedfl.errors import EngineError
from codedfl.network import DelayModel, RoundCosts, TransferChance
from codedfl.scenario import DeviceGroup, Fleet, Links, Scenario

MOST_EMULATED = 1 << 20
"""Upper bound of epochs, stages and parcels; protects against memory exhaustion."""


@final
@dataclass(frozen=True)
class TransferEvent:
    """When parcels are sent: after an epoch (hand-overs), or in a stage, counted from 0, of so many parcels."""

    epoch: int | None = None
    stage: int | None = None
    parcels: int = 0

    def to_table(self) -> dict[str, int | None]:
        """Write it as plain values."""
        return dict(vars(self))

    @classmethod
    def from_table(cls, table: Any) -> "TransferEvent":
        """Read what :meth:`to_table` wrote, whoever sent it."""
        valid = isinstance(table, dict) and table.keys() == {"epoch", "stage", "parcels"}
        if valid:
            numbers = [value for value in table.values() if value is not None]
            valid = table["parcels"] is not None and (table["epoch"] is None) != (table["stage"] is None)
            valid = valid and all(type(number) is int and 0 <= number < MOST_EMULATED for number in numbers)
        if not valid:
            raise EngineError("the message does not say when parcels are sent; check that versions agree")
        return cls(**table)


@final
@dataclass(frozen=True, eq=False)
class TransferDelays:
    """A device's part in a stage or in hand-overs: how long each step takes, in seconds of this machine's clock."""

    _emulation: "Emulation"
    _chance: TransferChance

    @property
    def rate(self) -> float:
        """Rate of this device's link to other devices, in bit/s of the scenario."""
        return self._emulation.rate("d2d")

    def prepare(self, grant_bits: int, macs: int) -> float:
        """Return how long this device takes to receive all grants and to prepare all parcels."""
        return self.grants(grant_bits) + self.export(macs)

    def grants(self, bits: int) -> float:
        """Return how long this device takes to receive grants."""
        return self._emulation.sending(self._own("grant_tries") * bits, self._emulation.rate("down"))

    def export(self, macs: int) -> float:
        """Return how long this device takes to prepare all parcels."""
        return self._emulation.work(macs, self._own("export_setup"))

    def absorb(self, macs: int) -> float:
        """Return how long this device works on all parcels that it received."""
        return self._emulation.work(macs, self._own("absorb_setup"))

    def tries(self, number: int) -> float:
        """Return how often this device sends a parcel to another until it arrives."""
        return float(self._chance.parcel_tries[0, number])

    def upload(self, bits: int, number: int) -> float:
        """Return how long a parcel takes to the server."""
        return self._emulation.sending(float(self._chance.up_tries[0, number]) * bits, self._emulation.rate("up"))

    def download(self, bits: int, number: int) -> float:
        """Return how long a relayed parcel takes from the server to this device."""
        return self._emulation.sending(float(self._chance.relay_tries[0, number]) * bits, self._emulation.rate("down"))

    def _own(self, name: str) -> float:
        return float(getattr(self._chance, name)[0, self._emulation.device])


@final
@dataclass(frozen=True, eq=False)
class Emulation:
    """How long a device would take, in seconds of this machine's clock."""

    _delays: DelayModel
    device: int
    seed: int = 0
    draw: int = 0
    time_scale: float = 1.0
    links: bool = True

    def __post_init__(self) -> None:
        if not self.time_scale > 0:
            raise ValueError(f"time_scale = {self.time_scale} must be above 0")

    @classmethod
    def of_scenario(
        cls, scenario: Scenario, device: int, *, time_scale: float = 1.0, links: bool = True
    ) -> "Emulation":
        """Return a device of a scenario, in the scenario's own timing draw."""
        timing, delays = scenario.timing, DelayModel.create(scenario.fleet, scenario.links)
        return cls(delays, device, seed=timing.seed, draw=timing.draw, time_scale=time_scale, links=links)

    @classmethod
    def alone(
        cls, group: DeviceGroup, rates: Links, *, seed: int = 0, time_scale: float = 1.0, links: bool = True
    ) -> "Emulation":
        """Return the device of a site that knows only its own speed and links."""
        delays = DelayModel.create(Fleet(devices=(group,)), rates)
        return cls(delays, 0, seed=seed, time_scale=time_scale, links=links)

    def rate(self, link: str) -> float:
        """Return the rate of a link (down, up, d2d) in bit/s of the scenario."""
        return float(getattr(self._delays, f"{link}_rate")[self.device])

    def reply(
        self, epoch: int, question: int, *, down_bits: int = 0, macs: int = 0, up_bits: int = 0
    ) -> tuple[float, float, float]:
        """Return how long it takes to receive a question, to work on it, and to send the reply."""
        chance = self._delays.chance(self.seed, epoch, self.draw, 1, question)
        sent = (down_bits, macs, up_bits) if self.links else (0, macs, 0)
        down, work, up = (np.array([number], np.int64) for number in sent)
        costs = RoundCosts(np.array([self.device]), down, work, up, quorum=1, server_macs=0)
        parts = self._delays.reply_parts(costs, chance)
        received, worked, replied = (float(part[0, 0]) * self.time_scale for part in parts)
        return received, worked, replied

    def transfers(self, event: TransferEvent) -> TransferDelays:
        """Return this device's part in a stage or in hand-overs."""
        own = np.full(event.parcels, self.device)
        if event.epoch is not None:
            chance = self._delays.handover_chance(self.seed, event.epoch, self.draw, 1)
            tries = chance.parcel_tries[:, own]
            return TransferDelays(self, replace(chance, parcel_tries=tries, up_tries=tries, relay_tries=tries))
        return TransferDelays(self, self._delays.stage_chance(self.seed, event.stage or 0, self.draw, 1, own, own))

    def parcel(self, bits: int, tries: float, rate: float) -> float:
        """Return how long the parcel of another device takes, which sends it so often at that rate."""
        return self.sending(tries * bits, min(rate, self.rate("d2d")))

    def work(self, macs: int, setup: float) -> float:
        """Return how long the device computes, given its setup time in units of the mean."""
        seconds = self._delays.work_seconds(np.array([macs]), np.array([setup]), np.array([self.device]))
        return float(seconds[0]) * self.time_scale

    def sending(self, bits: float, rate: float) -> float:
        """Return how long bits, those of all tries, take on a link."""
        return float(self._delays.send_seconds(np.array([bits]), np.array([rate]))[0]) * self.time_scale * self.links
