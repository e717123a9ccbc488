"""What the owner of a site agrees to: with whom, under which terms; everything else is refused.

The table ``[agreement]`` of ``site.toml``, which start-up kits fill in and ``codedfl site agree`` writes.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, final

import numpy as np
from jaxtyping import Shaped

from codedfl.deploy.protocol.envelopes import DeviceKey, Member, verify
from codedfl.deploy.protocol.fields import one_line
from codedfl.deploy.protocol.terms import Terms, terms_of
from codedfl.errors import RefusalError, ScenarioError, UsageError
from codedfl.scenario import Scenario
from codedfl.schemes.identity import Identity
from codedfl.settings import Settings, read_section, setting

FILE = "agreement.toml"
"""Beside ``site.toml``: agreed terms, to be read."""

LEAST = 3
"""Devices in a sum unless the owner says otherwise: with two, each knows the other's part."""


class Agreement(Settings, table="agreement"):
    """With which devices, and under which terms, a site takes part; without terms and schemes it refuses every run.

    ``cohort`` holds all devices in their order, this site among them. ``terms`` are agreed digests. ``schemes`` are
    allowed with any options and features.
    """

    cohort: tuple[str, ...] = setting(default=())
    least: int = setting(default=LEAST, low=1)
    terms: tuple[str, ...] = setting(default=())
    schemes: tuple[str, ...] = setting(default=())

    def check(self) -> None:
        """Refuse what are no digests, and a device twice."""
        for digest in self.terms:
            if not re.fullmatch("sha256:[0-9a-f]{64}", digest):
                raise ScenarioError(f"agreement.terms holds {digest!r}, which is no digest; run `codedfl site agree`")
        if len(set(self.cohort)) < len(self.cohort):
            raise ScenarioError("agreement.cohort names a device twice; name each once, in the order of the devices")

    def admit_cohort(self, site: str, sites: Sequence[str]) -> None:
        """Refuse other devices than the agreed ones, another order, and too few of them."""
        if not self.cohort:
            raise RefusalError(f"{site} has agreed to no cohort; its owner runs `codedfl site agree KIT SCENARIO`")
        if tuple(sites) != self.cohort:
            pairs = enumerate(zip(sites, self.cohort, strict=False), start=1)
            other = next((f"device {n} is {one_line(a)}, not {b}" for n, (a, b) in pairs if a != b), "")
            counted = f"{len(sites)} devices, not {len(self.cohort)}"
            raise RefusalError(f"{site} has agreed to another cohort ({other or counted}); agree with its owner first")
        if len(sites) < self.least:
            raise RefusalError(
                f"{site} takes part with at least {self.least} devices, not {len(sites)}, because sums of few show the "
                "data of each; its owner may lower agreement.least"
            )

    def admit(self, site: str, scenario: Scenario, *, collected: bool) -> Terms:
        """Return the terms of a scenario; refuse those that are not agreed.

        Where categories may be ``collected``, those that a scenario without any of its own has got are allowed.
        """
        if scenario.fleet.size != len(self.cohort):
            raise RefusalError(
                f"{site} has agreed to {len(self.cohort)} devices, not {scenario.fleet.size}; check both"
            )
        terms = terms_of(scenario)
        if scenario.scheme in self.schemes or terms.digest in self.terms:
            return terms
        if collected and scenario.features.categories:
            without = terms_of(scenario.with_settings({"features.categories": []}))
            if without.digest in self.terms:
                return without
        if not self.terms and not self.schemes:
            raise RefusalError(f"{site} has agreed to no run; its owner runs `codedfl site agree KIT SCENARIO`")
        raise RefusalError(
            f"{site} has not agreed to scheme '{scenario.scheme}' with these options, features and epochs "
            f"({terms.digest}); its owner compares `codedfl site terms SCENARIO` and runs `codedfl site agree`"
        )

    def admit_sums(self, site: str, terms: Terms, scheme: str) -> None:
        """Refuse sums under a scheme that is neither agreed nor follows from agreed terms."""
        if terms.digest not in self.terms and scheme not in self.schemes:
            raise RefusalError(f"{site} has not agreed to sums under scheme '{scheme}'; its owner decides")


def write_terms(kit: Path, terms: Terms) -> None:
    """Write the agreed terms of a kit, to be read; what counts are the digests in ``site.toml``."""
    heading = ["What this site has agreed to, to be read; what counts is the digest in site.toml.", terms.digest]
    lines = [f"# {line}" for line in (*heading, *terms.words)]
    (kit / FILE).write_text("\n".join([*lines, "", terms.text]), encoding="utf-8")
    (kit / FILE).chmod(0o600)


def agreed_cohort(kit: Path) -> tuple[str, ...]:
    """Return the cohort in the ``site.toml`` of a kit."""
    from codedfl.deploy.flare.sites import read_site

    table = read_site(kit).get("agreement", {})
    return read_section(table, Agreement, "agreement").cohort


def agree(kit: Path, scenario: Scenario, cohort: Sequence[str] | None = None, least: int | None = None) -> Agreement:
    """Let the site of a kit agree to the terms of a scenario, and to no others; return what it has agreed to.

    Without ``cohort`` and ``least`` those of ``site.toml`` stay.
    """
    from codedfl.deploy.flare.kits import write_site
    from codedfl.deploy.flare.sites import edit_site, read_site

    site = read_site(kit)
    del site["folder"]
    outdated = site.pop("schemes", None) is not None  # of earlier versions, which allowed any options
    before, terms = read_section(site.get("agreement", {}), Agreement, "agreement"), terms_of(scenario)
    made = Agreement(
        cohort=before.cohort if cohort is None else tuple(cohort),
        least=before.least if least is None else least,
        terms=(terms.digest,),
    )
    if len(made.cohort) != scenario.fleet.size or site.get("name") not in made.cohort:
        raise UsageError(
            f"the cohort ({', '.join(made.cohort) or 'nobody'}) must name the {scenario.fleet.size} devices of the "
            f"scenario, {site.get('name')} among them; name all of them, in order, with --cohort"
        )
    if outdated:
        write_site(kit, site | {"agreement": made.to_table()})
    else:  # the owner's comments stay
        edit_site(kit, "agreement", made.to_table())
    write_terms(kit, terms)
    return made


@final
class RoundOrder:
    """The rounds that a device has answered in a session: later ones follow, and never more epochs than agreed.

    With ``returns`` the server may go back to an earlier epoch so many times.
    """

    def __init__(self, site: str, epochs: int, returns: int) -> None:
        self._site = site
        self._epochs = epochs
        self._returns = returns
        self._last = (0, -1)

    def admit(self, epoch: int, question: int) -> None:
        """Refuse a round that is not after the last one."""
        if not 1 <= epoch <= self._epochs:
            raise RefusalError(f"{self._site} has agreed to {self._epochs} epochs and refuses epoch {epoch}")
        if (epoch, question) <= self._last and not self._returns:
            raise RefusalError(
                f"{self._site} was asked round {question} of epoch {epoch} after round {self._last[1]} of epoch "
                f"{self._last[0]}; rounds must follow each other"
            )

    def answered(self, epoch: int, question: int) -> None:
        """Remember a round that was answered."""
        self._returns -= (epoch, question) <= self._last
        self._last = epoch, question


def check_model(model: Shaped[np.ndarray, "..."], shape: tuple[int, int], dtype: "np.dtype[Any]") -> None:
    """Refuse a model that is not of the announced shape, or whose numbers are of another format or not finite.

    Schemes check residues; here only their number counts, which may be sent in several words each.
    """
    if model.dtype.kind == "f":
        sound = model.shape == shape and model.dtype == dtype and bool(np.isfinite(model).all())
    else:
        sound = model.shape[:2] in (shape, shape[::-1]) and model.shape[2:] in ((), (3,))
    if not sound:
        raise RefusalError(
            f"the model of the request holds {model.dtype.name} in the shape {model.shape}, not {shape[0]} x {shape[1]}"
            " finite numbers of the agreed format; check the server"
        )


def identity_of(
    site: str,
    key: DeviceKey | None,
    pins: Mapping[str, str] | None,
    sites: Sequence[str],
    members: Mapping[str, Member],
    told: bytes,
) -> Identity | None:
    """Return the signatures of this site, and the keys of those others that it has pinned; of all if it pins none.

    Signatures of sites that the server ``told`` other things are not accepted.
    """
    if key is None:
        return None
    keys: dict[int, bytes] = {}
    for number, name in enumerate(sites):
        pinned = pins is None or name == site or name in pins
        if name in members and pinned:  # that pinned keys are the announced ones, the envelopes have checked
            keys[number] = members[name].public

    def verify_device(device: int, message: bytes, signature: bytes) -> bool:
        return device in keys and verify(keys[device], message + told, signature)

    return Identity(lambda message: key.sign(message + told), verify_device, frozenset(keys))
