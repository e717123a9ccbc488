"""Emulation of slow devices and links on fast sites, so that a fleet fits one machine.

The seconds are those of the delay model, with the random numbers of a simulation of the same seed and draw: a site
takes as long as its device in virtual time. ``time_scale`` 0.01 lets a hundred seconds pass in one. Without ``links``
only computing is emulated.
"""

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Float

from codedfl.errors import EngineError
from codedfl.network import DelayModel, RoundCosts, grant_seconds, relay_tries, stage_chance
from codedfl.scenario import DeviceGroup, Fleet, Links, Scenario

__all__ = ["Emulation", "TransferDelays", "TransferEvent"]

_MOST = 1 << 20
"""Upper bound of epochs, stages and parcels; protects against memory exhaustion."""


@final
@dataclass(frozen=True)
class TransferEvent:
    """When parcels are sent: after an epoch (a hand-over), or in a stage (counted from 0); and how many."""

    epoch: int | None = None
    stage: int | None = None
    parcels: int = 0

    def to_table(self) -> dict[str, int | None]:
        """Return plain values for a frame."""
        return dict(vars(self))

    @classmethod
    def from_table(cls, table: Any) -> "TransferEvent":
        """Validate what another party sent."""
        kinds = {"epoch": (int, type(None)), "stage": (int, type(None)), "parcels": (int,)}
        sound = isinstance(table, dict) and table.keys() == kinds.keys()
        sound = sound and all(
            type(table[name]) in allowed and 0 <= (table[name] or 0) < _MOST for name, allowed in kinds.items()
        )
        if not sound or (table["epoch"] is None) == (table["stage"] is None):
            raise EngineError("the event of a transfer is invalid; check that versions agree")
        return cls(**table)


@final
class TransferDelays:
    """Delays of one device in a stage of transfers, in seconds of this machine's clock."""

    def __init__(
        self,
        slow: "Emulation",
        *,
        grant_seconds_a_bit: float,
        export_setup: float,
        absorb_setup: float,
        tries: Float[np.ndarray, "m"],
        relay_tries: Float[np.ndarray, "m"],
    ) -> None:
        self._slow = slow
        self._grant = grant_seconds_a_bit
        self._setups = export_setup, absorb_setup
        self._tries = tries
        self._relay_tries = relay_tries

    @property
    def rate(self) -> float:
        """Rate of the link to other devices, in bit/s of the scenario."""
        return self._slow.d2d_rate

    def prepare(self, grant_bits: int, macs: int) -> float:
        """Return the time to receive all grants and export all parcels."""
        granted = grant_bits * self._grant * self._slow.time_scale if self._slow.links else 0.0
        return granted + self._slow.work(macs, self._setups[0])

    def absorb(self, macs: int) -> float:
        """Return the time to absorb all parcels."""
        return self._slow.work(macs, self._setups[1])

    def tries(self, number: int) -> float:
        """Return the number of transmissions until a parcel arrives."""
        return float(self._tries[number])

    def parcel(self, bits: int, tries: float, rate: float) -> float:
        """Return the transmission time of a parcel of another device with that rate and number of tries."""
        return self._slow.sending(tries * bits, min(rate, self.rate))

    def upload(self, bits: int, number: int) -> float:
        """Return the transmission time of a parcel to the server."""
        return self._slow.sending(self.tries(number) * bits, self._slow.up_rate)

    def download(self, bits: int, number: int) -> float:
        """Return the transmission time of a relayed parcel from the server."""
        return self._slow.sending(float(self._relay_tries[number]) * bits, self._slow.down_rate)


@final
class Emulation:
    """Delays of a device, in seconds of this machine's clock."""

    def __init__(
        self,
        delays: DelayModel,
        device: int,
        *,
        seed: int = 0,
        draw: int = 0,
        time_scale: float = 1.0,
        links: bool = True,
    ) -> None:
        if not time_scale > 0:
            raise ValueError(f"time_scale = {time_scale} must be above 0")
        self._delays = delays
        self._device = device
        self._seed = seed
        self._draw = draw
        self.time_scale = time_scale
        self.links = links

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
        """Return a device that is described by its own speed and links only."""
        delays = DelayModel.create(Fleet(devices=(group,)), rates)
        return cls(delays, 0, seed=seed, time_scale=time_scale, links=links)

    @property
    def d2d_rate(self) -> float:
        """Rate of the link to other devices, in bit/s of the scenario."""
        return float(self._delays.d2d_rate[self._device])

    @property
    def up_rate(self) -> float:
        """Rate of the link to the server, in bit/s of the scenario."""
        return float(self._delays.up_rate[self._device])

    @property
    def down_rate(self) -> float:
        """Rate of the link from the server, in bit/s of the scenario."""
        return float(self._delays.down_rate[self._device])

    def reply(
        self, epoch: int, question: int, *, down_bits: int, macs: int, up_bits: int
    ) -> tuple[float, float, float]:
        """Return the times to receive a request, to compute, and to send the reply."""
        chance = self._delays.chance(self._seed, epoch, self._draw, 1, question)
        sent = (down_bits, macs, up_bits) if self.links else (0, macs, 0)
        down, work, up = (np.array([number], np.int64) for number in sent)
        costs = RoundCosts(np.array([self._device]), down, work, up, quorum=1, server_macs=0)
        received, worked, replied = (float(part[0, 0]) for part in self._delays.reply_parts(costs, chance))
        return received * self.time_scale, worked * self.time_scale, replied * self.time_scale

    def transfer_delays(self, event: TransferEvent) -> TransferDelays:
        """Return this device's delays in a stage of transfers."""
        delays, device, where = self._delays, self._device, {"seed": self._seed, "first": self._draw, "draws": 1}
        if event.epoch is not None:
            moved = delays.transfer_chance(self._seed, event.epoch, self._draw, 1)
            each = np.full(event.parcels, moved.parcel_tries[0, device])
            return TransferDelays(
                self,
                grant_seconds_a_bit=self._unscaled(float(moved.grant_tries[0, device]), self.down_rate),
                export_setup=float(moved.export_setup[0, device]),
                absorb_setup=float(moved.absorb_setup[0, device]),
                tries=each,
                relay_tries=each,
            )
        if event.stage is None:
            raise ValueError("parcels are sent after an epoch or in a stage")
        own = np.full(event.parcels, device)
        chance = stage_chance(delays, event.stage, own, **where)
        return TransferDelays(
            self,
            grant_seconds_a_bit=float(grant_seconds(delays, np.ones(delays.devices))[device]),
            export_setup=float(chance.export_setup[0, device]),
            absorb_setup=float(chance.absorb_setup[0, device]),
            tries=chance.parcel_tries[0],
            relay_tries=relay_tries(delays, event.stage, own, **where)[0],
        )

    def work(self, macs: int, setup: float) -> float:
        """Return the computing time, given the setup time in units of its mean."""
        return self._delays.work_seconds(self._device, macs, setup) * self.time_scale

    def sending(self, bits: float, rate: float) -> float:
        """Return the transmission time of bits, all tries included."""
        return self._unscaled(bits, rate) * self.time_scale if self.links else 0.0

    def _unscaled(self, bits: float, rate: float) -> float:
        return bits * (1 + self._delays.overhead) / rate
