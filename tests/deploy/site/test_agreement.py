"""What a site agrees to: terms by digest, the cohort, the order of rounds; all else is refused in one sentence."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codedfl.deploy.protocol.terms import terms_of
from codedfl.deploy.protocol.wire import decode
from codedfl.deploy.site.agreement import Agreement, RoundOrder, check_model
from codedfl.deploy.site.configuration import read_settings
from codedfl.deploy.site.record import SUMS, SumMemory
from codedfl.errors import RefusalError, ScenarioError
from codedfl.scenario import load, preset_names
from deploy.site.test_host import GIVEN, SITES, Asker, host, reason
from tiny import is_one_sentence, scenario

DIGEST = "sha256:" + "0" * 64


@pytest.mark.parametrize("name", preset_names())
def test_the_words_of_every_preset_are_three_to_eight_sentences(name: str) -> None:
    terms = terms_of(load(name))
    assert 3 <= len(terms.words) <= 8
    assert load(name).scheme in terms.words[0]
    assert terms == terms_of(load(name))


SAME = [{"training.learning_rate": 0.5}, {"timing.seed": 7}, {"name": "other"}, {"schemes.sealed.delta": 3.0}]
OTHER = [
    {"scheme": "minibatch"},
    {"training.epochs": 7},
    {"features.kind": "rbf"},
    {"features.seed": 1},
    {"features.intercept": True},
    {"task.accuracy": 0.1},
    {"data.held_out": 0.2},
    {"data.seed": 1},
    {"links.loss": 0.3},
    {"fleet.devices": [{"count": 2, "mac_rate": 1e6}]},
]


@pytest.mark.parametrize(("change", "same"), [(c, True) for c in SAME] + [(c, False) for c in OTHER], ids=str)
def test_the_digest_covers_what_a_site_acts_on_and_nothing_else(change: dict[str, Any], same: bool) -> None:
    given = scenario({"scheme": "conventional"})
    assert (terms_of(given).digest == terms_of(given.with_settings(change)).digest) is same


def test_the_same_terms_have_one_digest_however_they_are_written() -> None:
    given = scenario({"scheme": "conventional"})
    assert terms_of(given).digest == terms_of(given.with_settings({"features.intercept": given.intercept})).digest
    assert terms_of(given).digest == terms_of(given.with_settings({"task.accuracy": given.accuracy})).digest


PRIVATE = {"scheme": "one-shot", "privacy.epsilon": 1.0, "fleet.devices": [{"count": 5, "mac_rate": 1e6}]}


def test_noise_is_part_of_the_terms_of_private_runs_only() -> None:
    assert "privacy" not in terms_of(scenario({"scheme": "one-shot"})).text
    terms = terms_of(scenario(PRIVATE))
    changes = {"epsilon": 1.1, "delta": 1e-6, "colluding": 1, "losses": 1, "clip_features": 2.0, "clip_targets": 2.0}
    others = [{f"privacy.{name}": value} for name, value in changes.items()]
    others.append({"privacy.unit": "device", "privacy.most_rows": 10})
    assert len({terms.digest, *(terms_of(scenario(PRIVATE | other)).digest for other in others)}) == len(others) + 1
    (promise,) = [words for words in terms.words if "differentially private" in words]
    assert promise.startswith("all that the run reveals is (1.00, 1e-05)-differentially private for one record")
    assert "each device adds noise to its sums, once; rows are scaled down to norm 1, targets to 1" in terms.words
    weighed = scenario(PRIVATE | others[-1] | {"privacy.colluding": 2})
    assert "all records of one device added or removed, against the server and up to 2" in "".join(
        terms_of(weighed).words
    )


def test_noise_in_each_epoch_is_said_in_words() -> None:
    each = {"scheme": "secagg", "privacy.release": "each-epoch", "privacy.clip_residuals": 0.5}
    words = "each device adds noise to its gradient, in each epoch; rows are scaled down to norm 1, residuals to 0.5"
    assert words in terms_of(scenario(PRIVATE | each)).words


def test_noise_of_a_known_seed_is_refused() -> None:
    asker = Asker(host(), "one-shot")
    asker.scenario = asker.scenario.with_settings({"privacy.epsilon": 1.0, "privacy.seed": 3})
    assert "privacy.seed = 3 makes the noise known" in reason(asker.describe())


def agreed(asker: Asker, **changes: Any) -> Agreement:
    return Agreement(**{"cohort": SITES, "least": 2, "terms": [terms_of(asker.scenario).digest], **changes})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"terms": []}, "has agreed to no run"),
        ({"terms": [DIGEST]}, "has not agreed to scheme 'conventional' with these options"),
        ({"terms": [], "schemes": ["sealed"]}, "has not agreed to scheme 'conventional'"),
        ({"cohort": []}, "has agreed to no cohort"),
        ({"cohort": SITES[::-1]}, "another cohort (device 1 is device-1, not device-2)"),
        ({"cohort": [*SITES, "device-3"]}, "another cohort (2 devices, not 3)"),
        ({"least": 3}, "takes part with at least 3 devices, not 2"),
    ],
    ids=str,
)
def test_a_site_refuses_what_is_not_agreed(
    changes: dict[str, Any], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    asker = Asker(host())
    asker.host = host(agreement=agreed(asker, **changes))
    assert words in reason(asker.describe())
    assert words in caplog.text


def test_a_site_takes_part_under_agreed_terms_only_and_any_options_of_allowed_schemes() -> None:
    asker = Asker(host())
    asker.host = host(agreement=agreed(asker))
    asker.begin()
    wide = Asker(host(agreement=agreed(asker, terms=[], schemes=["conventional"])))
    wide.scenario = wide.scenario.with_settings({"features.seed": 9})
    assert wide.describe().kind == "answer"


def test_the_cohort_must_be_the_same_when_devices_are_made() -> None:
    asker = Asker(host())
    assert "another cohort (device 2 is device-9" in reason(
        asker.prepare(asker.describe(), sites=["device-1", "device-9"])
    )


def test_rounds_follow_each_other_and_there_are_no_more_epochs_than_agreed() -> None:
    asker = Asker(host())
    asker.begin()
    assert decode(asker.host.handle(asker.round(3))).kind == "answer"
    for epoch in (3, 2):
        assert "rounds must follow each other" in reason(decode(asker.host.handle(asker.round(epoch))))
    most = asker.scenario.training.epochs
    assert f"refuses epoch {most + 1}" in reason(decode(asker.host.handle(asker.round(most + 1))))
    assert decode(asker.host.handle(asker.round(4))).kind == "answer", "what was refused changed nothing"


def test_an_epoch_that_failed_may_be_asked_again() -> None:
    asker = Asker(host())
    asker.begin()
    fields = {"epoch": 2, "question": 0, "standing": False, "offline": False}
    wrong = asker.ask("reply", {"model": np.zeros((9, 9))}, **fields)
    assert "in the shape (9, 9)" in reason(wrong)
    assert decode(asker.host.handle(asker.round(2))).kind == "answer"


def test_the_server_may_go_back_as_often_as_devices_can_lie() -> None:
    rounds = RoundOrder("device-1", 10, returns=1)
    for epoch in (1, 2, 3, 2):
        rounds.admit(epoch, 0)
        rounds.answered(epoch, 0)
    rounds.admit(3, 0)
    rounds.answered(3, 0)
    with pytest.raises(RefusalError, match="rounds must follow"):
        rounds.admit(3, 0)


@pytest.mark.parametrize(
    ("model", "sound"),
    [
        (np.zeros((3, 2)), True),
        (np.zeros((2, 3), np.uint64), True),
        (np.zeros((2, 3, 3), np.uint16), True),
        (np.zeros((3, 2), np.float32), False),
        (np.full((3, 2), np.nan), False),
        (np.zeros((2, 3)), False),
        (np.eye(3), False),
        (np.eye(3, dtype=np.uint64), False),
        (np.zeros(6, np.uint64), False),
    ],
    ids=lambda value: str(getattr(value, "shape", value)),
)
def test_models_have_the_agreed_shape_and_format(model: np.ndarray, sound: bool) -> None:
    if sound:
        check_model(model, GIVEN.shape, np.dtype("float64"))
        return
    with pytest.raises(RefusalError) as error:
        check_model(model, GIVEN.shape, np.dtype("float64"))
    assert is_one_sentence(str(error.value))


@pytest.mark.parametrize("site", ["device-1", "device-9"])
def test_no_parcels_are_exchanged_with_the_site_itself_or_strangers(site: str) -> None:
    asker = Asker(host(), "sealed")
    asker.begin()
    sent = asker.ask("export", stage=1, occasion=None, parcels=[[0, site, False, 0]])
    assert f"exchanges no parcels with {site}" in reason(sent)
    taken = asker.ask("absorb", stage=1, occasion=None, parcels=[[0, site]])
    assert f"exchanges no parcels with {site}" in reason(taken)


def test_a_sum_is_opened_again_with_the_same_devices_only(tmp_path: Path) -> None:
    """Also by a process that was started later."""
    memory = SumMemory(tmp_path / "run")
    memory.admit("device-1", "training", 4, [2, 0, 1])
    memory.opened("training", 4, [2, 0, 1])
    for known in (memory, SumMemory(tmp_path / "run")):
        known.admit("device-1", "training", 4, [0, 1, 2])
        known.admit("device-1", "training", 5, [0, 1])
        known.admit("device-1", "sum-0", 4, [0, 1])
        with pytest.raises(
            RefusalError, match="the sum of epoch 4 with the devices 0,1,2 and refuses one with 0,1,"
        ) as e:
            known.admit("device-1", "training", 4, [0, 1])
        assert is_one_sentence(str(e.value))
    (tmp_path / "run" / SUMS).write_text("training/4 0,1,2\ntraini", encoding="utf-8")
    SumMemory(tmp_path / "run").admit("device-1", "training", 5, [0])


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"agreement": {"terms": ["abc"]}}, "which is no digest"),
        ({"agreement": {"cohort": ["a", "a"]}}, "names a device twice"),
        ({"agreement": {"least": 0}}, "agreement.least = 0 must be a whole number at least 1"),
        ({"agreement": {"cohorts": []}}, "unknown key 'agreement.cohorts'"),
        ({"agreement": "all"}, "must be a table"),
        ({"agreement": {"terms": DIGEST}}, "must be a list"),
        ({"schemes": ["sealed"]}, "schemes is no longer a key of site.toml"),
        ({"share_names": "yes"}, "share_names = 'yes' must be true or false"),
    ],
    ids=str,
)
def test_bad_agreements_are_refused_in_one_sentence(table: dict[str, Any], words: str) -> None:
    with pytest.raises(ScenarioError) as error:
        read_settings({"name": "device-1", "data": {"source": "mine.csv"}} | table)
    assert words in str(error.value)
    assert is_one_sentence(str(error.value))


def test_the_old_key_shares_categories_and_not_names() -> None:
    table = {"name": "device-1", "data": {"source": "mine.csv"}}
    old = read_settings(table | {"share_categories": True}).site(Path())
    assert (old.shares_categories, old.share_names) == (True, False)
    new = read_settings(table | {"share_names": True}).site(Path())
    assert (new.shares_categories, new.share_names) == (True, True)
