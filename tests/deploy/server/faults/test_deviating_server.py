"""A deviating server against unmodified sites, in one process: every attack is refused, and honest runs go on."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codedfl import schemes
from codedfl.deploy.protocol.envelopes import DeviceKey
from codedfl.deploy.protocol.terms import terms_of
from codedfl.deploy.site.agreement import Agreement
from codedfl.deploy.site.host import DeviceHost
from codedfl.deploy.site.session import LocalData, Site
from codedfl.scenario import Scenario
from codedfl.testing.hostile import HostileServer
from codedfl.testing.hostile_attacks import ATTACKS, LEAKS, VICTIM, Deviation
from codedfl.testing.in_process import InProcessCarrier, StillClock, any_terms
from fleets import CLASSES, InProcessFleet, fleet
from tiny import is_one_sentence, problem, scenario, trained

GIVEN = problem([9, 8, 7, 8, 9], features=6, outputs=3)
LIKE = {"features": 6, "inputs": 6, "outputs": 3, "rows": 7, "kind": "classification", "classes": CLASSES[:3]}
OWN: dict[str, dict[str, Any]] = {
    "one-shot": {},
    "secagg": {},
    "secagg-all": {"scheme": "secagg", "schemes.secagg.threshold": 5},
    "secagg-sealed": {"scheme": "secagg", "schemes.secagg.inner": "sealed"},
    "chosen-ridge": {"scheme": "secagg", "task.ridge": [0.01, 0.1], "training.solver": "conjugate-gradients"},
    "sealed-coded": {"schemes.sealed-coded.workers": 4, "schemes.sealed-coded.threshold": 3},
}
SCENARIOS: dict[str, Scenario] = {
    name: scenario(
        {"scheme": name, "task.ridge": GIVEN.ridge, "fleet.devices": [{"count": 5, "mac_rate": 25e6}], **own}
    )
    for name, own in OWN.items()
}


@pytest.fixture(scope="module")
def sites() -> Iterator[InProcessFleet]:
    """Sites that have agreed to the terms of all scenarios, and to nothing else."""
    with fleet(GIVEN) as made:
        agreed = Agreement(cohort=made.sites, terms=tuple(terms_of(each).digest for each in SCENARIOS.values()))
        pins = {site: key.fingerprint for site, key in made.keys.items()}
        for site, shard in zip(made.sites, GIVEN.shards, strict=True):
            data = LocalData(shard, "classification", CLASSES[:3])
            own = Site(site, lambda _, data=data: data, made.keys[site], pins, agreed)
            made.carrier.attach(site, DeviceHost(own, made.carrier.peers(site)))
        yield made


def _attempted(sites: InProcessFleet, attack: Deviation) -> dict[str, Any]:
    server = HostileServer(sites.carrier, sites.sites, SCENARIOS, sites.clock, 30.0)
    return server.attempt(lambda hostile: attack.act(hostile, LIKE))


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_an_attack_is_refused_in_a_sentence_that_both_sides_have(
    attack: Deviation, sites: InProcessFleet, caplog: pytest.LogCaptureFixture
) -> None:
    found = _attempted(sites, attack)
    assert found["learned"] is None
    assert found["refused"]
    assert any(attack.sentence in sentence for sentence in found["refused"].values())
    for sentence in found["refused"].values():
        assert is_one_sentence(sentence)
        parcel = sentence.partition("could not send to ")[2].partition(": ")[2]
        assert (parcel or sentence).removesuffix("...") in caplog.text


@pytest.mark.parametrize("attack", LEAKS, ids=lambda attack: attack.name)
def test_what_sites_cannot_refuse_is_in_the_table(attack: Deviation, sites: InProcessFleet) -> None:
    """A device that the server calls lost cannot be told from a lost one; so sums differ by its gradient."""
    learned = _attempted(sites, attack)["learned"]
    shard, model = GIVEN.shards[learned["device"]], np.array(learned["model"])
    assert np.allclose(learned["estimate"], shard.gram @ model - shard.moments, rtol=1e-9)
    table = schemes.nominal(SCENARIOS[attack.scenario]).secrecy()
    verdicts = {row.asset: row.verdict for row in table if row.adversary == "deviating server"}
    assert (verdicts["gradient"], verdicts["gram"]) == ("leaks", "leaks")


def test_the_attack_works_on_a_site_whose_owner_agrees_to_anything() -> None:
    """The victim alone with four invented devices, whose keys it does not pin: its Gram matrix is the sum."""
    victim, *names = cohort = ("device-1", *(f"invented-{number}" for number in range(1, 5)))
    clock = StillClock()
    carrier = InProcessCarrier(clock=clock)
    data = LocalData(GIVEN.shards[VICTIM], "classification", CLASSES[:3])
    lenient = Site(victim, lambda _: data, DeviceKey(), None, any_terms(cohort))
    carrier.attach(victim, DeviceHost(lenient, carrier.peers(victim)))
    try:
        server = HostileServer(carrier, (victim, *names), SCENARIOS, clock, 30.0)
        found = server.attempt(lambda hostile: ATTACKS[0].act(hostile, LIKE))
    finally:
        carrier.close()
    assert found["refused"] == {}
    assert np.allclose(found["learned"]["estimate"], GIVEN.shards[VICTIM].gram, rtol=1e-9)


@pytest.mark.parametrize("name", ["one-shot", "secagg", "secagg-all", "sealed-coded"])
def test_honest_runs_go_on_after_attacks(name: str, sites: InProcessFleet, tmp_path: Path) -> None:
    for attack in ATTACKS[:8]:
        _attempted(sites, attack)
    run = sites.deploy(SCENARIOS[name], tmp_path / "run")
    with np.load(run.path / "model.npz") as arrays:
        assert np.array_equal(arrays["theta"], trained(GIVEN, SCENARIOS[name]).model)
