"""Sites whose replies are wrong numbers of the right shape: found by spare replies, late ones included, and dropped."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codedfl.deploy.protocol.wire import Frame, decode, encode
from codedfl.errors import LostDevicesError
from codedfl.runs import Run
from codedfl.runs import directory as runs
from codedfl.scenario import Scenario
from codedfl.testing.misbehaving import flipped
from contracts.test_engines import EPOCHS, chosen, given
from fleets import InProcessFleet, fleet
from tiny import is_one_sentence

LIAR = 2
SPARE = {"sealed-coded": {"workers": 5, "threshold": 3}, "coded-padded": {"alpha": 3}}
ONE_SPARE = {"sealed-coded": {"workers": 5, "threshold": 4}, "coded-padded": {"alpha": 2}}


def wanted(scheme: str, options: dict[str, Any]) -> Scenario:
    return chosen(scheme, **{f"schemes.{scheme}": options})


def lie(sites: InProcessFleet, tells: Callable[[int], bool]) -> list[int]:
    """Let one site lie in these epochs; return the list to which its lies are added."""
    told: list[int] = []

    def reply(site: str, tag: int, payload: bytes) -> list[bytes]:
        frame = decode(payload)
        if site != sites.sites[LIAR] or "epoch" not in frame.fields or not tells(frame.fields["epoch"]):
            return [payload]
        told.append(frame.fields["epoch"])
        return [encode(Frame(frame.kind, frame.fields, flipped(frame.arrays)))]

    sites.faults.reply = reply
    return told


def model(run: Run) -> np.ndarray:
    return np.load(run.path / "model.npz")["theta"]


@pytest.fixture(params=SPARE)
def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def honest(scheme: str, tmp_path: Path) -> np.ndarray:
    made = given()
    return model(runs.execute(wanted(scheme, SPARE[scheme]), tmp_path / "virtual", problem=lambda: made))


@pytest.mark.parametrize(
    "tells", [lambda e: e > 1, lambda e: e == 3, lambda e: e == EPOCHS], ids=["all", "one", "last"]
)
def test_a_site_that_lies_is_dropped_with_a_reason_and_the_model_is_right(
    tells: Callable[[int], bool], scheme: str, honest: np.ndarray, tmp_path: Path
) -> None:
    with fleet(given()) as sites:
        told = lie(sites, tells)
        run = sites.deploy(wanted(scheme, SPARE[scheme]), tmp_path / "run", seeded_keys=True)
    assert np.array_equal(model(run), honest)
    deployment = run.summary["deployment"]
    assert told
    assert set(deployment["liars"]) <= {sites.sites[LIAR]}
    assert bool(deployment["liars"]) == bool(run.summary["liars"])
    if run.summary["liars"]:
        (liar,) = run.summary["liars"]
        assert (liar["device"], liar["how"]) == (LIAR, deployment["liars"][sites.sites[LIAR]])
        assert deployment["lost"] == {sites.sites[LIAR]: liar["how"]}
    assert run.epochs["epoch"].tolist() == list(range(1, EPOCHS + 1))


def test_a_site_that_lies_in_every_reply_is_named(scheme: str, honest: np.ndarray, tmp_path: Path) -> None:
    """At the latest by the questions after the last epoch."""
    with fleet(given()) as sites:
        lie(sites, lambda epoch: epoch > 1)
        run = sites.deploy(wanted(scheme, SPARE[scheme]), tmp_path / "run", seeded_keys=True)
    assert np.array_equal(model(run), honest)
    assert [each["device"] for each in run.summary["liars"]] == [LIAR]
    assert run.summary["spoilt_epochs"] > 0


def test_with_one_spare_reply_the_run_stops_in_words_and_goes_on_when_the_liar_is_mended(
    scheme: str, tmp_path: Path
) -> None:
    options, made = ONE_SPARE[scheme], given()
    whole = runs.execute(wanted(scheme, options), tmp_path / "virtual", problem=lambda: made)
    with fleet(given()) as sites:
        lie(sites, lambda epoch: epoch > 2)
        with pytest.raises(LostDevicesError, match="replied wrong numbers") as error:
            sites.deploy(wanted(scheme, options), tmp_path / "run", seeded_keys=True)
        assert is_one_sentence(str(error.value))
        sites.faults.reply = lambda site, tag, payload: [payload]
        run = sites.deploy(wanted(scheme, options), tmp_path / "run", seeded_keys=True)
    assert np.array_equal(model(run), model(whole))


def test_honest_sites_are_all_checked(scheme: str, honest: np.ndarray, tmp_path: Path) -> None:
    with fleet(given()) as sites:
        run = sites.deploy(wanted(scheme, SPARE[scheme]), tmp_path / "run", seeded_keys=True)
    assert np.array_equal(model(run), honest)
    first = 1 if scheme == "sealed-coded" else 0
    assert (run.summary["unchecked_epochs"], run.summary["checked_epochs"]) == (first, EPOCHS - first)
    assert (run.summary["liars"], run.summary["spoilt_epochs"]) == ([], 0)
