"""What a site knows of the session it is in: its data, its device, its parcels, and in which order it works."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np

from codedfl import schemes
from codedfl.deploy.protocol import fields
from codedfl.deploy.protocol.envelopes import DeviceKey, Envelopes, Member
from codedfl.deploy.site.emulation import Emulation, Errand, Occasion
from codedfl.deploy.site.locks import Turns
from codedfl.deploy.site.parcels import Inbox
from codedfl.deploy.site.reception import Reception
from codedfl.errors import DataError, EngineError, UsageError
from codedfl.scenario import Scenario
from codedfl.schemes import Device, Public, Scheme, SharingDevice
from codedfl.task import Shard

__all__ = ["Emulate", "Holding", "Session", "Site"]

Emulate = Callable[[Scenario, int], Emulation]
"""Says for a scenario and the number of a device how slow it is."""


@final
@dataclass(frozen=True, eq=False)
class Holding:
    """What a site holds for a scenario: its data, and of a classification the names of all classes."""

    shard: Shard
    kind: str
    classes: tuple[str, ...] = ()

    def check(self, site: str) -> None:
        """Refuse data that nobody can compute with."""
        for what, values in (("features", self.shard.x), ("targets", self.shard.y)):
            if not np.isfinite(values).all():
                raise DataError(f"the {what} of {site} hold missing or infinite numbers; remove or replace them")


@final
@dataclass(frozen=True, eq=False)
class Site:
    """A site as its owner set it up.

    ``load`` brings the data for a scenario: the server never says where data lie. Without a ``key`` no parcels can be
    exchanged; ``pins`` are the fingerprints of the others' keys (``deploy.protocol.envelopes``). ``schemes`` are those
    that the owner agrees to; none means any.
    """

    name: str
    load: Callable[[Scenario], Holding] = field(repr=False)
    key: DeviceKey | None = None
    pins: Mapping[str, str] | None = None
    schemes: tuple[str, ...] = ()


@final
class Session:
    """One session of a server with a site; it is prepared once."""

    def __init__(self, name: str, site: Site, scenario: Scenario, holding: Holding) -> None:
        self.name = name
        self.scenario = scenario
        self.holding = holding
        self.own = None if site.key is None else Member.of(site.key)
        self.turns = Turns()
        self.inbox = Inbox()
        self.reception = Reception()
        self.slow: Emulation | None = None
        self.uploads = False
        self._site = site
        self._lock = threading.Lock()
        self._begun = False
        self._device: Device | None = None
        self._envelopes: Envelopes | None = None

    @property
    def device(self) -> Device:
        """The device of the scheme."""
        if self._device is None:
            raise EngineError("this site is not prepared for the run; prepare it first")
        return self._device

    @property
    def sharing(self) -> SharingDevice:
        """The device, where it exchanges parcels."""
        if not isinstance(self.device, SharingDevice):
            raise EngineError("the devices of this scheme exchange no parcels; choose another scheme")
        return self.device

    @property
    def envelopes(self) -> Envelopes:
        """What parcels are closed with."""
        if self._envelopes is None:
            raise EngineError(
                "this site has no key, so that it can exchange no parcels; make one and name it in the site"
            )
        return self._envelopes

    def announce(self, told: Mapping[str, Any], emulate: Emulate | None) -> tuple[Scheme[Any], int]:
        """Take what the server says of the run; return the scheme, and which device of it this site is.

        It is taken once: a second time, numbers that parcels are told apart by would begin anew.
        """
        with self._lock:
            if self._begun:
                raise EngineError("this site has been prepared for this session before; begin another one")
            self._begun = True
        index, public = fields.count(told, "index"), self._public(told)
        scheme = schemes.build(self.scenario, public)
        if scheme.unfit_for_sites is not None:
            raise UsageError(scheme.unfit_for_sites)
        if self.own is not None and self._site.key is not None:
            self._envelopes = Envelopes(
                self._site.name,
                self._site.key,
                self.own,
                _members(told),
                fields.text(told, "run"),
                self._site.pins,
            )
        self.slow = None if emulate is None else emulate(self.scenario, index)
        self.uploads = scheme.uploads
        return scheme, index

    def _public(self, told: Mapping[str, Any]) -> Public:
        """Read what everybody knows, and see that this site is in it as it is."""
        own, index = self.holding.shard, fields.count(told, "index")
        sites, samples = fields.names(told, "sites"), fields.counts(told, "samples")
        dtype = fields.text(told, "dtype")
        shape = fields.count(told, "features"), fields.count(told, "outputs")
        alike = len(sites) == len(samples) == self.scenario.fleet.size
        if not alike or index >= len(sites) or sites[index] != self._site.name:
            raise DataError(f"the server takes {self._site.name} for another site; check the list of sites")
        if (samples[index], shape, dtype) != (own.samples, (own.x.shape[1], own.y.shape[1]), own.x.dtype.name):
            raise DataError(
                f"the server takes {self._site.name} for another site: its data have other sizes; check the list"
            )
        return Public(
            tuple(samples),
            *shape,
            np.dtype(dtype),
            largest_feature=fields.real(told, "largest_feature"),
            largest_target=fields.real(told, "largest_target"),
            delays=schemes.known_delays(self.scenario),
        )

    def errand(self, occasion: Occasion | None) -> Errand | None:
        """Return the emulated part in an exchange of parcels, if one is told and if any is emulated."""
        return None if self.slow is None or occasion is None else self.slow.errand(occasion)

    def close(self) -> None:
        """Drop what is going on."""
        self.turns.close()
        self.reception.close()

    def take_up(self, device: Device) -> None:
        """Keep the device that the scheme has made."""
        self._device = device


def _members(told: Mapping[str, Any]) -> dict[str, Member]:
    """Read what each site shows of itself."""
    try:
        shown = {str(site): tuple(bytes.fromhex(text) for text in pair) for site, pair in told["members"].items()}
        return {site: Member(public, nonce) for site, (public, nonce) in shown.items()}
    except (KeyError, TypeError, ValueError, AttributeError):
        raise EngineError(
            "what the server tells of the sites' keys cannot be read; check that versions agree"
        ) from None
