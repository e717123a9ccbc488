"""The paper's scheme at its limits: no hand-over, sorted labels, sizes that fit no cipher, few devices."""

from pathlib import Path

import numpy as np
import pytest

from codedfl.errors import ScenarioError
from codedfl.network import DelayModel
from codedfl.runs import directory as runs
from schemes.sharing.small_code import EPOCHS, LIMIT, T_TOT, C, D, N, apart, created, digits, wanted, wanted64
from tiny import gamma, is_one_sentence, trained


def test_an_infinite_patience_is_plain_gradient_descent_in_time_too() -> None:
    """With a Delta that nobody exceeds, nothing moves: the times are those of rounds in which all are awaited."""
    chosen = wanted(delta=1e9)
    state = trained(digits(), chosen)
    assert state.history.handovers == []
    delays = DelayModel.create(chosen.fleet, chosen.links)
    ends, now = [], 0.0
    for epoch in range(1, EPOCHS + 1):
        luck = delays.chance(0, epoch, 0, 1)
        if epoch == 1:
            seconds = luck.up_tries[0] * (D * C * 32 * 1.1 / 5e6)
        else:
            work = C * D * N / np.repeat([2e6, 1e6, 2e5], [4, 3, 3])
            down, up = luck.down_tries[0] * (D * C * 32 * 1.1 / 10e6), luck.up_tries[0] * (C * N * 32 * 1.1 / 5e6)
            seconds = down + work * (1 + luck.setup[0] / 2) + up
        decoding = 0 if epoch == 1 else C * (T_TOT * (N - T_TOT) + D * D) / 8.24e12
        now += max(seconds) + decoding
        ends.append(now)
    assert np.allclose(state.history.columns["time"], ends, rtol=gamma(10 * EPOCHS, "float64"), atol=0)


def test_sorted_labels_change_nothing_while_dropping_devices_does() -> None:
    """The sum over all data does not care who holds what; those who are never heard do."""
    epochs = 60
    chosen = {kind: wanted64({"partition.kind": kind, "training.epochs": epochs}) for kind in ("iid", "shards")}
    problems = {kind: digits("float64", kind) for kind in chosen}
    models = {kind: trained(problems[kind], chosen[kind]) for kind in chosen}
    drift = apart(problems["iid"], epochs)
    assert np.linalg.norm(models["iid"].model - models["shards"].model) <= drift
    x = problems["iid"].x_test
    scores = np.sort(x @ models["iid"].model, axis=1)
    assert np.min(scores[:, -1] - scores[:, -2]) > 2 * drift * np.linalg.norm(x, axis=1).max(), "no label is in doubt"
    final = {kind: state.history.columns["accuracy"][-1] for kind, state in models.items()}
    assert final["shards"] == final["iid"]
    dropping = {"scheme": "drop-slowest", "schemes.drop-slowest.wait_for": 5, "partition.kind": "shards"}
    dropped = trained(problems["shards"], wanted64({**dropping, "training.epochs": epochs}))
    assert dropped.history.columns["accuracy"][-1] < final["shards"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n": D}, "k is 40 and must not exceed n - 1 = 39"),
        ({"n": D - 1}, "k is 40 and must not exceed n - 1 = 38"),
        ({"degree": 41}, "degree is 41 and must not exceed n - k = 40"),
        ({"t_tot": 41}, "t_tot is 41 and must not exceed n - k = 40"),
        ({"t": 13}, "t is 13 and must not exceed t_tot = 12"),
        ({"beta": 5}, "beta is 5 and must not exceed t = 4"),
    ],
    ids=str,
)
def test_sizes_that_make_no_cipher_are_refused(options: dict[str, int], words: str) -> None:
    with pytest.raises(ScenarioError) as error:
        created(digits(), wanted(**options))
    assert str(error.value).startswith("schemes.code-based does not fit 40 features: ")
    assert words in str(error.value)
    assert is_one_sentence(str(error.value))


@pytest.mark.parametrize("options", [{"M": 496}, {"t": T_TOT, "M": 2}], ids=str)
def test_more_supports_than_there_are_subsets_are_refused_before_anything_is_written(
    options: dict[str, int], tmp_path: Path
) -> None:
    """12 positions have C(12, 4) = 495 subsets of 4 and a single one of 12."""
    with pytest.raises(ScenarioError) as error:
        runs.execute(wanted(**options), tmp_path / "run", problem=digits)
    assert is_one_sentence(str(error.value))
    assert not (tmp_path / "run").exists()


def test_an_erasure_set_that_only_least_squares_restores_is_refused_or_works(tmp_path: Path) -> None:
    """30 of 40 checks' worth of erasures: least squares restores them, peeling finds no check with a single one."""
    try:
        run = runs.execute(wanted(t_tot=30, decoder="least-squares"), tmp_path / "run", problem=digits)
    except ScenarioError as error:
        assert is_one_sentence(str(error))
        assert "choose" not in str(error) or "least-squares" not in str(error).split("choose")[1], "it is chosen"
        assert not (tmp_path / "run").exists()
    else:
        assert run.summary["gradient_error"] <= LIMIT["float32"]


def test_a_single_device_trains_alone(tmp_path: Path) -> None:
    chosen = wanted({"fleet.devices": [{"count": 1, "mac_rate": 1e6}]})
    run = runs.execute(chosen, tmp_path / "run")
    assert run.summary["handovers"] == 0
    assert run.summary["gradient_error"] <= LIMIT["float32"]


@pytest.mark.parametrize("count", [2, 3])
def test_few_devices_end_with_one(count: int, tmp_path: Path) -> None:
    """One fast device and others a thousand times slower: they leave in pairs, or alone if there is no other."""
    groups = [{"count": 1, "mac_rate": 1e7}, {"count": count - 1, "mac_rate": 1e4}]
    run = runs.execute(wanted({"fleet.devices": groups}), tmp_path / "run")
    assert run.summary["handovers"] == count - 1
    assert run.summary["gradient_error"] <= LIMIT["float32"]
