"""Runs with noise on sites: interruptions release nothing new, budgets hold, and no lie of a server takes noise off."""

import dataclasses
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dp_accounting import get_epsilon_gaussian, get_sigma_gaussian

from codedfl import schemes
from codedfl.deploy.protocol.terms import terms_of
from codedfl.deploy.protocol.wire import Frame
from codedfl.deploy.server.channel import SiteRequest
from codedfl.deploy.site import privacy as site_privacy
from codedfl.deploy.site.agreement import Agreement
from codedfl.deploy.site.privacy import LEDGER, SEED, SitePrivacy
from codedfl.errors import EngineError, ScenarioError
from codedfl.privacy.accounting import mu_of
from codedfl.privacy.release import GRAM_SHARE, Release
from codedfl.runs import Run
from codedfl.runs import directory as runs
from codedfl.scenario import Scenario
from codedfl.schemes import Public
from codedfl.schemes.private import NoisyShard, noisy_shard, release_of
from codedfl.task import Shard
from codedfl.testing.hostile import HostileServer, Obtained
from deploy.server.test_interrupted_deployment import Interrupted
from fleets import InProcessFleet, fleet
from rundirs import strict_json
from tiny import is_one_sentence, problem, scenario

GIVEN = problem([9, 8, 7, 8, 9], features=6, outputs=3)
FLEET = {"fleet.devices": [{"count": 5, "mac_rate": 25e6}], "task.ridge": GIVEN.ridge, "training.targets": []}
OWN: dict[str, dict[str, Any]] = {
    "one-shot": {"training.solver": "closed-form"},
    "sealed-coded": {"schemes.sealed-coded.workers": 4, "schemes.sealed-coded.threshold": 3},
    "secagg": {},
}


def private(scheme: str, **changes: Any) -> Scenario:
    return scenario({"scheme": scheme, "privacy.epsilon": 2.0, **FLEET, **OWN[scheme], **changes})


def entries(folder: Path, site: str) -> list[dict[str, Any]]:
    path = folder / site / LEDGER
    found: list[dict[str, Any]] = strict_json(path.read_text())["releases"] if path.exists() else []
    return found


def model(run: Run) -> np.ndarray:
    return np.load(run.path / "model.npz")["theta"]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> dict[bytes, list[NoisyShard]]:
    """All noisy sums that sites make, by their rows."""
    found: dict[bytes, list[NoisyShard]] = {}

    def noted(shard: Shard, release: Release, seed: bytes | None, keep: Any) -> Any:
        result: Any = noisy_shard(shard, release, seed, keep)
        found.setdefault(shard.x.tobytes(), []).append(result)
        return result

    monkeypatch.setattr(site_privacy, "noisy_shard", noted)
    monkeypatch.setattr(runs, "_CHECKPOINT_SECONDS", -1.0)
    return found


@pytest.mark.parametrize(
    ("scheme", "kind", "count"),
    [("one-shot", "reply", 15), ("sealed-coded", "carry", 4), ("sealed-coded", "reply", 9), ("secagg", "reply", 30)],
)
def test_a_server_and_sites_that_are_killed_release_the_same_sums_once(
    scheme: str, kind: str, count: int, tmp_path: Path, made: dict[bytes, list[NoisyShard]]
) -> None:
    with fleet(GIVEN, folder=tmp_path / "sites") as sites:
        Interrupted(sites, kind, count)
        with pytest.raises(KeyboardInterrupt):
            sites.deploy(private(scheme), tmp_path / "run", check=False)
        while sites.carrier.next(None) is not None:
            pass
        assert any(entries(tmp_path / "sites", site) for site in sites.sites), "something had left"
        sites.restart()
        run = sites.deploy(private(scheme), tmp_path / "run", check=False)
        assert [len(entries(tmp_path / "sites", site)) for site in sites.sites] == [1] * 5
        assert [len(sums) for sums in made.values()] == [2] * 5
        for first, again in made.values():
            assert np.array_equal(first.gram, again.gram)
            assert np.array_equal(first.moments, again.moments)
        assert not list((tmp_path / "sites").rglob(SEED)), "seeds of a run that has ended are deleted"
        other = sites.deploy(private(scheme), tmp_path / "other", check=False)
        assert [len(entries(tmp_path / "sites", site)) for site in sites.sites] == [2] * 5
    assert not np.any(model(other) == model(run))
    for folder in ("run", "other"):
        shown = strict_json((tmp_path / folder / "site-records.json").read_text())
        totals = [row["record"]["privacy"]["total"]["releases"] for row in shown["records"]]
        assert totals == [1 if folder == "run" else 2] * 5
        assert all(
            row["record"]["privacy"]["statement"] == run.summary["privacy"]["statement"] for row in shown["records"]
        )


@pytest.mark.parametrize("count", [18, 33])
def test_noise_in_each_epoch_is_kept_with_the_models_that_were_answered(count: int, tmp_path: Path) -> None:
    """Killed while masked replies, or shares, of an epoch are on their way; the epoch is asked again."""
    wanted = private("secagg", **{"privacy.release": "each-epoch", "privacy.clip_residuals": 0.5})
    with fleet(GIVEN, folder=tmp_path / "sites") as sites:
        Interrupted(sites, "reply", count)
        with pytest.raises(KeyboardInterrupt):
            sites.deploy(wanted, tmp_path / "run", check=False)
        while sites.carrier.next(None) is not None:
            pass
        kept = {path.parts[-4]: strict_json(path.read_text())["sums"] for path in (tmp_path / "sites").rglob(SEED)}
        assert any(name.endswith(" 1") for sums in kept.values() for name in sums), "an epoch was answered"
        sites.restart()
        run = sites.deploy(wanted, tmp_path / "run", check=False)
        assert [len(entries(tmp_path / "sites", site)) for site in sites.sites] == [1] * 5
        assert not list((tmp_path / "sites").rglob(SEED)), "seeds of a run that has ended are deleted"
    epochs = wanted.training.epochs
    (entry,) = entries(tmp_path / "sites", "device-3")
    assert (run.summary["epochs"], entry["releases"]) == (epochs, epochs)
    assert run.summary["epsilon"] == entry["epsilon"] <= 2.0
    assert run.summary["privacy"]["statement"] == entry["statement"]


def test_attempts_in_which_nothing_leaves_cost_nothing(tmp_path: Path) -> None:
    """Four sites are prepared, and the last one refuses: nobody is charged, however often it is tried."""
    with fleet(GIVEN, folder=tmp_path / "sites") as sites:
        (tmp_path / "sites" / "device-5" / LEDGER).write_text("{")
        for number in range(3):
            with pytest.raises(EngineError, match=r"device-5.*privacy cannot be read"):
                sites.deploy(private("one-shot"), tmp_path / f"run-{number}", check=False)
        assert [entries(tmp_path / "sites", site) for site in sites.sites[:4]] == [[]] * 4


@pytest.mark.parametrize("scheme", OWN)
def test_a_budget_that_is_used_up_refuses_in_a_sentence_that_both_sides_have(
    scheme: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with fleet(GIVEN, folder=tmp_path / "sites", privacy=SitePrivacy(budget_epsilon=2.5)) as sites:
        sites.deploy(private(scheme), tmp_path / "run", check=False)
        before = [(tmp_path / "sites" / site / LEDGER).read_bytes() for site in sites.sites]
        with pytest.raises(EngineError, match=r"has used epsilon 2\.00 of its budget of 2\.5") as error:
            sites.deploy(private(scheme), tmp_path / "second", check=False)
        assert [(tmp_path / "sites" / site / LEDGER).read_bytes() for site in sites.sites] == before
    assert is_one_sentence(str(error.value))
    mu_left = math.sqrt(get_sigma_gaussian(2.5, 1e-5) ** -2 - get_sigma_gaussian(2.0, 1e-5) ** -2)
    left = math.floor(100 * get_epsilon_gaussian(1 / mu_left, 1e-5)) / 100
    sentence = f"asks for 2.00 (delta 1e-05), where {left:g} is left; its owner decides"
    assert sentence in str(error.value)
    for who in ("cannot answer", "refused a message from"):
        assert any(who in line and sentence in line for line in caplog.messages), who


def test_the_server_states_what_sites_promise(tmp_path: Path) -> None:
    wanted = private("one-shot", **{"privacy.colluding": 1})
    with fleet(GIVEN, folder=tmp_path / "sites") as sites:
        run = sites.deploy(wanted, tmp_path / "run", check=False)
        (entry,) = entries(tmp_path / "sites", "device-3")
    for table in (run.summary, strict_json((run.path / "model" / "model.json").read_text())):
        assert table["privacy"]["statement"] == entry["statement"]
        assert table["privacy"]["mu"] == entry["mu"]
    assert run.summary["epsilon"] == entry["epsilon"]


MODEL = np.random.default_rng(1).normal(size=GIVEN.shape)


@contextmanager
def deviating(wanted: Scenario) -> Iterator[tuple[InProcessFleet, HostileServer]]:
    """Sites that have agreed to one private scenario, and a server that does as it likes."""
    with fleet(GIVEN) as sites:
        agreed = Agreement(cohort=sites.sites, terms=(terms_of(wanted).digest,))
        sites.owned = {site: dataclasses.replace(own, agreement=agreed) for site, own in sites.owned.items()}
        sites.restart()
        yield sites, HostileServer(sites.carrier, sites.sites, {"private": wanted}, sites.clock, 30.0)


def refusals(server: HostileServer, act: Callable[[HostileServer], Any]) -> list[str]:
    found = server.attempt(lambda hostile: (act(hostile), Obtained("something", 0))[1])
    assert found["learned"] is None
    assert all(is_one_sentence(sentence) for sentence in found["refused"].values())
    return list(found["refused"].values())


def changed(**fields: Any) -> Callable[[str, Frame], Frame]:
    """Let the server describe the run with other fields."""

    def change(site: str, frame: Frame) -> Frame:
        return Frame(frame.kind, {**frame.fields, **fields}, frame.arrays) if frame.kind == "prepare" else frame

    return change


@pytest.mark.parametrize(
    "lie",
    [
        {"largest_feature": 2.0**40},
        {"largest_feature": 1e-30},
        {"largest_target": 2.0**40},
        {"feature_energy": 1e30, "target_energy": 1e30},
        {"accuracy": 1e9},
        {"feature_claims": [2.0**40] * 5},
        {"target_claims": [1.0] * 4 + [2.0**40]},
    ],
    ids=str,
)
def test_bounds_that_would_round_the_noise_away_are_refused(lie: dict[str, Any]) -> None:
    with deviating(private("one-shot")) as (_, server):
        told = refusals(server, lambda hostile: hostile.begin("private", change=changed(**lie)))
    assert any("other bounds than the agreed privacy.clip_features" in sentence for sentence in told)


@pytest.mark.parametrize(
    "changes",
    [
        {"privacy.epsilon": 200.0},
        {"privacy.delta": 1e-3},
        {"privacy.clip_features": 1e-3},
        {"privacy.colluding": 0},
        {"privacy.losses": 0},
        {"training.epochs": 999},
        {"schemes.one-shot.threshold": 3},
        {"privacy.unit": "device", "privacy.most_rows": 1},
    ],
    ids=str,
)
def test_another_promise_than_the_agreed_one_is_refused(changes: dict[str, Any]) -> None:
    agreed = private("one-shot", **{"privacy.colluding": 1, "privacy.losses": 1})
    with deviating(agreed) as (_, server):
        told = refusals(server, lambda hostile: hostile.begin(agreed.with_settings(changes)))
    assert any("has not agreed to scheme 'one-shot' with these options" in sentence for sentence in told)


@pytest.mark.parametrize(("scheme", "losses"), [("one-shot", 0), ("one-shot", 1), ("secagg", 0)])
def test_no_more_devices_than_agreed_may_be_called_lost(scheme: str, losses: int) -> None:
    """The server follows a threshold of its own; what sites refuse is a sum with too little noise."""
    wanted = private(scheme, **{"privacy.losses": losses})

    def call_lost(hostile: HostileServer) -> None:
        session = hostile.begin("private")
        low = dataclasses.replace(session.public, release=None)
        session.server = session.scheme.with_public(low).server()
        session.epoch(1, MODEL, only=range(4 - losses))

    with deviating(wanted) as (_, server):
        told = refusals(server, call_lost)
    assert any(f"fewer than the threshold of {5 - losses}" in sentence for sentence in told)


@pytest.mark.parametrize("epoch", [1, 2])
def test_a_sum_with_noise_is_opened_again_with_the_same_devices_only(epoch: int) -> None:
    """In another session of the run noise is the same, so the difference would be one device's noisy sum."""
    with deviating(private("one-shot", **{"privacy.losses": 1})) as (sites, server):
        begun = server.begin("private", run="a-run")
        begun.epoch(1, MODEL)
        again = refusals(
            server, lambda hostile: hostile.begin("private", run="a-run").epoch(epoch, MODEL, only=range(4))
        )
        assert any("because their difference shows single devices" in sentence for sentence in again)
        assert [host._ledger.total().releases for host in map(sites.carrier.host, sites.sites)] == [1] * 5  # type: ignore[attr-defined]


def test_an_epoch_with_noise_of_its_own_is_answered_again_with_the_same_model_only() -> None:
    with deviating(private("secagg", **{"privacy.release": "each-epoch"})) as (_, server):
        first = server.begin("private", run="a-run").epoch(1, MODEL)
        assert np.array_equal(server.begin("private", run="a-run").epoch(1, MODEL), first)
        told = refusals(server, lambda hostile: hostile.begin("private", run="a-run").epoch(1, 2 * MODEL))
    assert any("epoch 1 was answered with another model" in sentence for sentence in told)


@pytest.mark.parametrize("scheme", OWN)
def test_noise_is_not_repeated_beside_fresh_noise_of_others(scheme: str, made: dict[bytes, list[NoisyShard]]) -> None:
    """A server that ends the run at all sites but one would average their noise out; the one is charged as well."""
    with deviating(private(scheme)) as (_, server):
        begun = server.begin("private", run="a-run")
        begun.ask({device: SiteRequest("forget", {"stage": None}) for device in begun.devices[1:]})
        server.begin("private", run="a-run")
    for first, again in made.values():
        assert not np.any(first.moments == again.moments)


def test_a_number_format_that_rounds_noise_away_is_refused() -> None:
    def coarse(hostile: HostileServer) -> None:
        form = {"form": np.array(-2, np.int16)}
        hostile.begin("private").epoch(1, MODEL, inner=lambda device, request: {**request, **form})

    with deviating(private("secagg")) as (_, server):
        assert any("round its noisy reply to steps of 4," in sentence for sentence in refusals(server, coarse))


SAMPLES = [[9, 1, 1, 1, 1], [9, 2**20, 8, 7, 8], [9, *[2**53 - 1] * 4]]


@pytest.mark.parametrize("samples", SAMPLES, ids=str)
@pytest.mark.parametrize(
    "own",
    [{"privacy.delta": 1e-18}, {"privacy.unit": "device", "privacy.most_rows": 4, "privacy.delta": 1e-3}],
    ids=str,
)
def test_lies_about_the_rows_of_others_take_no_noise_off(samples: list[int], own: dict[str, Any]) -> None:
    """By hand: clips of 1, mu of the budget, and five shares that a device counts on."""
    wanted = private("one-shot", **own)
    release = release_of(wanted, samples, 6, 3)
    assert release is not None
    mu, rows = mu_of(2.0, wanted.privacy.delta), wanted.privacy.most_rows or 1
    gram, side = (math.sqrt(5) * steps * 2.0**-bits for steps, bits in _shares(release))
    assert gram >= rows / (math.sqrt(2 * GRAM_SHARE) * mu)
    assert side >= rows / (math.sqrt(1 - GRAM_SHARE) * mu)


def _shares(release: Release) -> list[tuple[int, int]]:
    return [(release.off_diagonal_steps, release.gram_bits), (release.moments_steps, release.moments_bits)]


def test_sites_know_their_own_numbers_of_rows() -> None:
    """So only devices that collude can have others claimed, and those take no noise off."""
    with deviating(private("one-shot")) as (_, server):
        told = refusals(server, lambda hostile: hostile.begin("private", change=changed(samples=[1] * 5)))
        assert sum("its data have other sizes" in sentence for sentence in told) == 5


@pytest.mark.parametrize(("epsilon", "fits"), [(2.0, True), (1e6, False)])
def test_formats_so_coarse_that_they_show_single_devices_are_refused(epsilon: float, fits: bool) -> None:
    wanted = private("sealed-coded", **{"privacy.epsilon": epsilon, "privacy.delta": 1e-12})
    samples = (10**9,) * 5
    release = release_of(wanted, samples, 6, 3)
    public = Public(samples, 6, 3, np.dtype("float64"), release=release)
    if fits:
        schemes.build(wanted, public)
        return
    with pytest.raises(ScenarioError, match="with noise would be rounded to steps of") as error:
        schemes.build(wanted, public)
    assert is_one_sentence(str(error.value))
