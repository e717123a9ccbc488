"""What the noise of a run promises, whatever it is added to, in numbers and in one sentence."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import floor, inf, isfinite, log10, sqrt
from typing import Any, Literal, final

from codedfl.privacy.accounting import epsilon_of

KNOWN_SEED = "noise from a known seed: protects nothing"

Unit = Literal["record", "device"]


@dataclass(frozen=True, kw_only=True)
class Promise(ABC):
    """Abstract: epsilon and delta of all that a run releases, and what they rest on."""

    epsilon: float
    """Achieved by all releases of the run together; at most what was asked for."""
    delta: float
    mu: float
    """Ratio of sensitivity to noise, of all releases together."""
    clip_features: float
    features: int
    outputs: int
    devices: int
    colluding: int
    losses: int
    rows: float
    """As how many rows those of the largest device count."""
    unit: Unit
    releases: int
    known_seed: bool = False
    """Whether others know the seed of the noise, as in a simulation that can be repeated."""

    @abstractmethod
    def counted(self, colluding: int) -> float:
        """How many shares of noise are counted on where so many devices collude."""

    @property
    @abstractmethod
    def covered(self) -> str:
        """What the promise covers, in words."""

    @property
    @abstractmethod
    def details(self) -> dict[str, float]:
        """Further clips, and standard deviations of the noise of all devices."""

    @property
    @final
    def honest(self) -> int:
        """How many shares of noise are counted on."""
        return int(self.counted(self.colluding))

    @final
    def epsilon_against(self, colluding: int) -> float:
        """Epsilon where so many devices collude; infinite where they may have all the noise."""
        left = self.counted(colluding)
        return epsilon_of(self.mu * sqrt(self.honest / left), self.delta) if left > 0 else inf

    def to_table(self) -> dict[str, Any]:
        """Return plain values."""
        given = ("epsilon", "delta", "mu", "unit", "releases", "devices", "colluding", "losses", "honest")
        return {
            **{name: getattr(self, name) for name in (*given, "clip_features")},
            **self.details,
            "known_seed": self.known_seed,
            "statement": self.statement,
        }

    def promise(self, colluding: int) -> str:
        """What the noise promises where so many devices collude, without saying against whom."""
        what = "one record" if self.unit == "record" else "all records of one device"
        epsilon = self.epsilon_against(colluding)
        if isfinite(epsilon):
            return f"({rounded_up(epsilon)}, {self.delta:g})-differentially private for {what} added or removed"
        return "no bound: all devices that add noise may be among them"

    @property
    def statement(self) -> str:
        """What is promised, for which unit, against whom, and for how many runs."""
        others = self.devices - self.colluding
        pooling = "1 device that colludes" if self.colluding == 1 else f"{self.colluding} devices that collude"
        the_others = f"the other {others} devices follow" if others > 1 else "the other device follows"
        lost = f" and no more than {self.losses} of them are lost" if self.losses else ""
        alone = "; a sum over one honest device is protected by its own noise only" if others == 1 else ""
        words = f"{KNOWN_SEED}; if it were secret: " if self.known_seed else ""
        return (
            f"{words}{self.promise(self.colluding)}, against the server and up to {pooling} with it, "
            f"if {the_others} the protocol{lost}; for {self.covered} alone{alone}"
        )


def rounded_up(epsilon: float) -> str:
    """Three digits, never less than the number."""
    shown = f"{epsilon:#.3g}"
    if float(shown) < epsilon:
        shown = f"{float(shown) + 10.0 ** (floor(log10(epsilon)) - 2):#.3g}"
    return shown.rstrip(".")
