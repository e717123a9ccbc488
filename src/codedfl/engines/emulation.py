"""A real site made as slow as a device of a given speed, behind links of given rates, so that a fleet fits one machine.

The seconds are those of the delay model. Replies meet the very random numbers of a simulation with the same seed and
draw; parcels have numbers of their own. ``time_scale`` 0.01 lets a hundred seconds pass in one.
"""

from typing import final

import numpy as np

from codedfl.delays import DelayModel, RoundCosts
from codedfl.scenario import DeviceGroup, Fleet, Links, Scenario

__all__ = ["Emulation"]

_PARCELS = 0x70617263
"""Keeps the random numbers of parcels apart from those of epochs."""


@final
class Emulation:
    """How long a device would take, in seconds of this machine's clock."""

    def __init__(
        self, delays: DelayModel, device: int, *, seed: int = 0, draw: int = 0, time_scale: float = 1.0
    ) -> None:
        if not time_scale > 0:
            raise ValueError(f"time_scale = {time_scale} must be above 0")
        self._delays = delays
        self._device = device
        self._seed = seed
        self._draw = draw
        self.time_scale = time_scale

    @classmethod
    def of_scenario(cls, scenario: Scenario, device: int, *, time_scale: float = 1.0) -> "Emulation":
        """Return one of the devices that a scenario describes, in its own timing draw."""
        timing, delays = scenario.timing, DelayModel.create(scenario.fleet, scenario.links)
        return cls(delays, device, seed=timing.seed, draw=timing.draw, time_scale=time_scale)

    @classmethod
    def alone(cls, group: DeviceGroup, links: Links, *, seed: int = 0, time_scale: float = 1.0) -> "Emulation":
        """Return a device of a site that knows its own speed and links only."""
        delays = DelayModel.create(Fleet(devices=(group,)), links)
        return cls(delays, 0, seed=seed, time_scale=time_scale)

    def reply(
        self, epoch: int, question: int, *, down_bits: int, macs: int, up_bits: int
    ) -> tuple[float, float, float]:
        """Return how long it takes to receive a question, to work on it, and to send the reply."""
        chance = self._delays.chance(self._seed, epoch, self._draw, 1, question)
        down, work, up = (np.array([number], np.int64) for number in (down_bits, macs, up_bits))
        costs = RoundCosts(np.array([self._device]), down, work, up, quorum=1, server_macs=0)
        received, worked, sent = (float(part[0, 0]) for part in self._delays.reply_parts(costs, chance))
        return received * self.time_scale, worked * self.time_scale, sent * self.time_scale

    def work(self, macs: int, *address: int) -> float:
        """Return how long it takes to prepare or to take in parcels; the address tells one time from another."""
        rate, delays, device = self._delays.mac_rate[self._device], self._delays, self._device
        mean = delays.setup_ratio[device] * macs / rate + delays.setup_seconds[device] if macs else 0.0
        return float(macs / rate + mean * self._random(*address).exponential()) * self.time_scale

    def parcel(self, bits: int, *address: int) -> float:
        """Return how long a parcel is on the link between devices."""
        return self._sending(bits, float(self._delays.d2d_rate[self._device]), *address)

    def upload(self, bits: int, *address: int) -> float:
        """Return how long a parcel is on its way to the server."""
        return self._sending(bits, float(self._delays.up_rate[self._device]), *address)

    def download(self, bits: int, *address: int) -> float:
        """Return how long a grant, or a parcel that the server relays, is on its way to this device."""
        return self._sending(bits, float(self._delays.down_rate[self._device]), *address)

    def _sending(self, bits: int, rate: float, *address: int) -> float:
        if not bits:
            return 0.0
        tries = self._random(*address).geometric(1 - self._delays.loss[self._device])
        return float(tries * bits * (1 + self._delays.overhead) / rate) * self.time_scale

    def _random(self, *address: int) -> np.random.Generator:
        key = (_PARCELS, self._draw, self._device, *address)
        return np.random.default_rng(np.random.SeedSequence(self._seed, spawn_key=key))
