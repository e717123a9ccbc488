"""The audit: attacks get what was really sent, the scorer gets the truth, and verdicts follow from both."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from benchmarks.level_formulas import PAPER_92

import tiny
from codedfl import schemes
from codedfl.errors import UsageError
from codedfl.scenario import Scenario, load
from codedfl.security import MARGIN
from codedfl.security.attacks import ATTACKS
from codedfl.security.attacks.parity_data import ParityGram
from codedfl.security.attacks.server_view import ServerReplies
from codedfl.security.audit import attack_scenario, decisive_epochs, exposures, released_model, statement
from codedfl.security.estimates.suite import estimates
from codedfl.task import Problem, Shard
from tiny import is_one_sentence


@pytest.fixture(scope="module")
def chosen() -> Scenario:
    """The paper's fleet on digits with few features: every hand-over and forwarding happens within 30 epochs."""
    changes = {
        "scheme": "code-based",
        "features.dimension": 60,
        "training.epochs": 30,
        "schemes.code-based": {
            "n": 160, "degree": 7, "t_tot": 24, "t": 8, "M": 16, "beta": 2, "delta": 0.05, "supply": "once",
        },
    }  # fmt: skip
    return load("paper-quick").with_settings(changes)


@pytest.fixture(scope="module")
def problem(chosen: Scenario) -> Problem:
    return Problem.build(chosen)


@pytest.fixture(scope="module")
def outcomes(chosen: Scenario, problem: Problem) -> list[Any]:
    return attack_scenario(chosen, problem, epochs=30)


def of(outcomes: list[Any], attack: str, assumption: str = "") -> Any:
    return next(entry for entry in outcomes if entry.attack == attack and assumption in entry.assumption)


@pytest.mark.parametrize("attack", ["left-kernel", "subspace-matching", "single-row", "basis-pursuit", "forwarding"])
def test_the_papers_scheme_falls(outcomes: list[Any], attack: str) -> None:
    score = of(outcomes, attack).score
    assert score.verdict == "falls"
    assert score.relative_error < 1e-4


def test_errors_of_full_rank_fall_too(outcomes: list[Any]) -> None:
    entry = of(outcomes, "metzner-kapturowski")
    assert entry.score.support_recovered
    assert "rank t = 8" in entry.assumption


def test_who_is_in_is_told_as_well_by_the_recovered_matrix_as_by_the_true_one(outcomes: list[Any]) -> None:
    for attack in ("leverage", "decomposition"):
        recovered, true = (of(outcomes, attack, words).score.auc for words in ("found", "true"))
        assert recovered >= 0.9
        assert abs(recovered - true) <= 1e-3


def test_the_true_matrix_is_tried_once_beside_that_of_a_parcel(outcomes: list[Any]) -> None:
    """And not again beside what the same attack finds under a further assumption."""
    assert sum(entry.attack == "left-kernel" for entry in outcomes) == 2
    assert sorted(entry.attack for entry in outcomes if "true matrix" in entry.assumption) == [
        *("decomposition", "leverage")
    ]


def test_one_earlier_sender_alone_reads_a_device_that_forwards_a_sum(outcomes: list[Any]) -> None:
    """Chains of hand-overs happen in this run: two senders to one device, which sends to one that sends on."""
    found = [entry.score for entry in outcomes if entry.attack == "forwarding"]
    assert {score.remark for score in found} == {"parcels taken away: 1", "parcels taken away: 2"}
    assert {score.verdict for score in found} == {"falls"}


def test_the_null_attacker_knows_nothing(outcomes: list[Any]) -> None:
    scores = [entry.score for entry in outcomes if entry.attack == "null"]
    assert len(scores) >= 3
    assert {score.verdict for score in scores} == {"holds"}


def test_reissued_supports_fall_to_whoever_had_them(chosen: Scenario, problem: Problem) -> None:
    changes = {"schemes.code-based.supply": "reissued", "schemes.code-based.M": 4}
    (outcome,) = attack_scenario(chosen.with_settings(changes), problem, names=["shared-support"], epochs=30)
    assert outcome.score.verdict == "falls"


@pytest.mark.parametrize("name", ["conventional", "minibatch", "drop-slowest", "deadline", "asynchronous"])
def test_the_server_learns_from_replies_in_clear(chosen: Scenario, problem: Problem, name: str) -> None:
    """The zero matrix has error 1; sixty features are few enough for 30 epochs to say much more than that."""
    outcome, *_ = attack_scenario(chosen.with_settings({"scheme": name}), problem, names=["server-replies"], epochs=30)
    assert outcome.holder == "the server"
    assert outcome.score.relative_error < 0.5


@pytest.mark.parametrize(
    ("scheme", "attack"), [("conventional", ServerReplies), ("parity", ParityGram)], ids=["replies", "parity data"]
)
def test_the_attacker_knows_the_public_guess(chosen: Scenario, problem: Problem, scheme: str, attack: Any) -> None:
    """The Gram matrix of the test data, scaled to the trace of the shard's own, is worth more than no guess."""
    tapped = chosen.with_settings({"scheme": scheme})
    outcome, *_ = attack_scenario(tapped, problem, names=[attack.name], epochs=3)
    shown = [entry for entry in exposures(tapped, problem, 3) if attack().suits(entry.view)]
    exposure = next(entry for entry in shown if entry.subject == outcome.device)
    true, x = exposure.gram.astype(np.float64), problem.x_test.astype(np.float64)
    guess = x.T @ x * (np.trace(true) / np.sum(x**2))

    def error(*prior: np.ndarray) -> float:
        found = attack(*prior).run(exposure.view, np.random.default_rng(0)).gram
        return float(np.linalg.norm(found - true) / np.linalg.norm(true))

    assert outcome.score.relative_error == pytest.approx(error(guess), rel=1e-4)
    assert outcome.score.relative_error < 0.9 * error(), "the guess matters here"


def test_what_the_public_guess_tells_already_is_no_success(chosen: Scenario, problem: Problem) -> None:
    """Test data that are the shard's own give its Gram matrix away before the first message."""
    plain = chosen.with_settings({"scheme": "conventional"})
    fewer = dataclasses.replace(problem, shards=problem.shards[:2])
    x = np.concatenate([shard.x for shard in fewer.shards])
    known = dataclasses.replace(fewer, shards=(Shard(x, np.concatenate([shard.y for shard in fewer.shards])),))
    known = dataclasses.replace(known, x_test=x, y_test=problem.y_test[: len(x)])
    outcome, *_ = attack_scenario(plain.with_devices(1), known, names=["server-replies"], epochs=2)
    assert outcome.score.relative_error < 1e-4
    assert outcome.score.verdict == "holds"


def test_parity_data_tell_the_server_who_is_in(chosen: Scenario, problem: Problem) -> None:
    """A device has 11 or 12 points in a batch and sends 144 rows: what they span is exact, what they weigh is not."""
    names = ["parity-gram", "parity-span", "null"]
    found = attack_scenario(chosen.with_settings({"scheme": "parity"}), problem, names=names, epochs=6)
    span, estimate = (next(entry for entry in found if entry.attack == name) for name in ("parity-span", "parity-gram"))
    assert (span.score.auc, span.score.verdict, span.holder) == (1.0, "falls", "the server")
    assert 0.05 < estimate.score.relative_error < 0.7
    assert {entry.score.verdict for entry in found if entry.attack == "null"} == {"holds"}
    assert sum(entry.attack == "null" for entry in found) == 3, "replies, parity data, parity data with candidates"


def test_one_attack_on_parity_data_alone(chosen: Scenario, problem: Problem) -> None:
    wanted = chosen.with_settings({"scheme": "parity", "schemes.parity.rows": "own"})
    (outcome,) = attack_scenario(wanted, problem, names=["parity-span"], epochs=4)
    assert outcome.score.verdict in ("leaks", "falls")
    assert outcome.score.auc < 1, "fewer rows than points"


def test_two_runs_and_the_model_are_attacked_beside_other_views(chosen: Scenario, problem: Problem) -> None:
    names = ["server-replies", "two-runs", "loss-threshold"]
    found = attack_scenario(chosen.with_settings({"scheme": "secagg"}), problem, names=names, epochs=2)
    assert [entry.attack for entry in found].count("two-runs") == 1
    assert {entry.attack for entry in found} == set(names)


@pytest.mark.parametrize("name", ["minibatch", "conventional", "secagg", "one-shot"])
def test_the_released_model_is_that_of_the_training(chosen: Scenario, problem: Problem, name: str) -> None:
    """That of minibatches to the last bit; where all rows count, that of plaintext gradients, but for rounding."""
    solver = "closed-form" if name == "one-shot" else "gradient-descent"
    wanted = chosen.with_settings({"scheme": name, "training.epochs": 4, "training.solver": solver})
    found, state = released_model(wanted, problem), tiny.trained(problem, wanted)
    np.testing.assert_allclose(
        found, state.model, rtol=0 if name == "minibatch" else 1e-3, atol=1e-6 * (name != "minibatch")
    )


def test_results_are_plain_values(outcomes: list[Any]) -> None:
    for entry in outcomes:
        table = entry.to_table()
        assert {"preset", "attack", "view", "relative_error", "support_recovered", "seconds", "verdict"} <= set(table)
        assert all(isinstance(value, str | int | float | bool | None) for value in table.values())
        assert table["seconds"] > 0
        assert entry.attack in ATTACKS


@pytest.mark.parametrize(("preset", "claimed", "left"), [("paper-92", 92, 80), ("paper-128", 128, 118)])
def test_the_statement_says_what_the_paper_claims_and_what_is_known(preset: str, claimed: int, left: int) -> None:
    said = statement(load(preset))
    assert (said.claimed_bits, said.bits_after_overlap, said.verdict) == (claimed, left, "broken")
    assert said.sentence.endswith(".")
    if preset == "paper-92":
        assert said.to_table()["estimates"] == {entry.name: entry.bits for entry in estimates(PAPER_92)}


def test_an_estimate_that_cannot_be_computed_is_null_and_not_dropped() -> None:
    """A support larger than the redundancy leaves no information set without errors."""
    usual = statement(load("paper-92"))
    odd = statement(load("paper-92").with_settings({"schemes.code-based.t": 2100, "schemes.code-based.t_tot": 2200}))
    assert odd.claimed_bits is odd.bits_after_overlap is None
    table = odd.to_table()["estimates"]
    assert set(table) == set(usual.to_table()["estimates"])
    assert None in table.values()


def test_what_is_not_encrypted_claims_nothing() -> None:
    said = statement(load("paper"))
    assert (said.claimed_bits, said.estimates, said.verdict) == (None, (), "not encrypted")


def test_a_level_needs_a_number_of_features() -> None:
    with pytest.raises(UsageError, match=r"features\.kind"):
        statement(load("paper-92").with_settings({"features.kind": "none"}))


@pytest.mark.parametrize(
    ("scheme", "epochs", "said"),
    [
        ("conventional", 1, "attack at least 2 epochs, not 1: the first one shows replies to the zero model only"),
        ("minibatch", 5, "each of 5 parts of the data for the first time in 5 epochs; attack at least 6 epochs"),
    ],
)
def test_too_few_epochs_are_refused_with_the_least_number(
    chosen: Scenario, problem: Problem, scheme: str, epochs: int, said: str
) -> None:
    tapped = chosen.with_settings({"scheme": scheme})
    with pytest.raises(UsageError, match=said) as error:
        attack_scenario(tapped, problem, epochs=epochs)
    assert is_one_sentence(str(error.value))
    shown = [entry for entry in exposures(tapped, problem, epochs + 1) if not entry.assumption]
    assert sorted(entry.subject for entry in shown) == list(range(len(problem.shards)))


def test_every_scheme_gives_a_reason_for_its_verdict() -> None:
    for name in schemes.SCHEMES:
        scheme = schemes.nominal(load("paper").with_settings({"scheme": name}))
        assert scheme.verdict_reason.endswith(".")
        assert scheme.verdict


def test_an_infinite_error_is_null_for_machines(outcomes: list[Any]) -> None:
    entry = outcomes[0]
    worse = dataclasses.replace(entry, score=dataclasses.replace(entry.score, relative_error=np.inf))
    assert worse.to_table()["relative_error"] is None


@pytest.mark.parametrize(
    ("outputs", "epochs", "decisive"), [(3, 100, 4 + MARGIN), (4, 100, 3 + MARGIN), (3, 5, 5), (3, 1, 2)]
)
def test_replies_of_c_dimensions_decide_after_as_many_epochs_as_span_all(
    outputs: int, epochs: int, decisive: int
) -> None:
    """Ten features: four epochs of three outputs, three of four; not more than are trained, and two at least."""
    chosen = tiny.scenario({"training.epochs": epochs})
    assert decisive_epochs(chosen, tiny.problem([4, 4], features=10, outputs=outputs)) == decisive
