"""One shot: two sums, opened once and exactly, and a server that does the rest alone."""

from collections.abc import Mapping
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codedfl import schemes
from codedfl.cipher.seals import packed_size
from codedfl.errors import DataError, LostDevicesError, ScenarioError
from codedfl.progress import silent
from codedfl.runs import directory as runs
from codedfl.scenario import Scenario
from codedfl.studies.compare import compare
from codedfl.task import Problem, Shard
from codedfl.training import State
from rundirs import Stopped, results, small, small_run, stop_at
from schemes.residues import fleet, summed
from tiny import conversed, gamma, is_one_sentence, problem, scenario, trained

SIZES = (4, 7, 3, 5, 9, 3)
D, C, N = 8, 2, len(SIZES)


@cache
def shared(dtype: str = "float64") -> Problem:
    return problem(SIZES, features=D, outputs=C, dtype=dtype)


def wanted(changes: Mapping[str, Any] | None = None) -> Scenario:
    base = {
        "scheme": "one-shot",
        "fleet.devices": fleet(*[1e6] * N),
        "training.epochs": 5,
        "training.learning_rate": 0.1,
        "training.solver": "closed-form",
    }
    return scenario({**base, **(changes or {})})


def driven(chosen: Scenario, given: Problem, gone: Mapping[int, int]) -> tuple[Any, Any]:
    """The scheme, and the server after the first epoch; None if too few were left."""
    scheme: Any = schemes.create(chosen, given)
    server = scheme.server()
    devices = [scheme.device(k, shard) for k, shard in enumerate(given.shards)]
    found = conversed(server, devices, 1, np.zeros(given.shape), lambda d, q: gone.get(d, 4) > q)
    return scheme, None if found is None else server


def exact_sums(scheme: Any, shards: tuple[Shard, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Sums of the rounded matrices in Python's own integers."""
    forms = scheme.formats
    gram = summed([shard.gram for shard in shards], forms.gram) * forms.gram.data_step
    moments = summed([shard.moments for shard in shards], forms.moments) * forms.moments.data_step
    return gram.astype(float), moments.astype(float)


@pytest.mark.parametrize(("precision", "ring"), [("float32", "Z_2^32"), ("float64", "Z_2^64")])
def test_the_sums_are_exact(precision: str, ring: str) -> None:
    """To the last bit those of the rounded matrices, in words as wide as the numbers."""
    given = shared(precision)
    scheme, server = driven(wanted({"task.precision": precision}), given, {})
    assert scheme.formats.gram.ring.name == scheme.formats.moments.ring.name == ring
    gram, moments = server.totals()
    expected = exact_sums(scheme, given.shards)
    assert np.array_equal(gram, expected[0])
    assert np.array_equal(moments, expected[1])


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_rounding_is_of_the_order_of_the_numbers_own(precision: str) -> None:
    """N/2 steps on an entry of the sums, against the largest that an entry can be: a few units of rounding."""
    scheme, _ = driven(wanted({"task.precision": precision}), shared(precision), {})
    public = scheme.public
    largest = sum(SIZES) * public.largest_feature**2
    unit = float(np.finfo(precision).eps)
    assert N / 2 * scheme.formats.gram.data_step / largest <= N * unit


def test_every_tolerated_set_of_losses_leaves_the_exact_sums_of_the_others() -> None:
    """Six devices, threshold 4: two vanish, at different questions; sums are scaled to all data points."""
    for gone in combinations(range(N), 2):
        for when in ((0, 2), (3, 1)):
            vanishing = dict(zip(gone, when, strict=True))
            scheme, server = driven(wanted(), shared(), vanishing)
            inside = [k for k in range(N) if vanishing.get(k, 4) > 2]
            scale = sum(SIZES) / sum(SIZES[k] for k in inside)
            for found, plain in zip(
                server.totals(), exact_sums(scheme, tuple(shared().shards[k] for k in inside)), strict=True
            ):
                assert np.array_equal(found, scale * plain)
    assert driven(wanted(), shared(), {0: 1, 2: 1, 4: 0})[1] is None


def test_a_loss_too_many_is_told() -> None:
    with pytest.raises(LostDevicesError) as error:
        trained(shared(), wanted(), last_epochs=dict.fromkeys((0, 1, 2), 0))
    assert "epoch 1 got 3 of the 4 replies" in str(error.value)
    assert is_one_sentence(str(error.value))
    assert trained(shared(), wanted(), last_epochs=dict.fromkeys((0, 1), 0)).epoch == 1


def solution_error(scheme: Any, given: Problem) -> float:
    """A bound on the distance to the true solution, in the Frobenius norm.

    With dA and dB the errors of the sums, (A + dA + m lambda) T' = B + dB gives
    |T' - T| <= (|dB| + |dA| |T|) / (m lambda - |dA|). Norms of matrices whose entries are off by N/2 steps: d, and
    sqrt(d c), times that; Gram matrices of n points in the devices' precision are off by gamma(n) in absolute values.
    Cholesky's factorisation and substitution add at most 3 d^2 units relative to |A| (Higham, theorem 10.4).
    """
    parts = [(abs(shard.x.astype(float)), abs(shard.y.astype(float))) for shard in given.shards]
    rounding = gamma(max(SIZES), given.dtype)
    gram = N / 2 * scheme.formats.gram.data_step * D + rounding * np.linalg.norm(sum(x.T @ x for x, _ in parts))
    gram += gamma(3 * D**2, np.float64) * np.linalg.norm(sum(x.T @ x for x, _ in parts))
    moments = N / 2 * scheme.formats.moments.data_step * np.sqrt(D * C)
    moments += rounding * np.linalg.norm(sum(x.T @ y for x, y in parts))
    smallest = sum(SIZES) * given.ridge - gram
    assert smallest > 0
    return float((moments + gram * np.linalg.norm(given.ridge_solution())) / smallest)


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_the_closed_form_is_the_ridge_solution(precision: str) -> None:
    given, chosen = shared(precision), wanted({"task.precision": precision})
    state = trained(given, chosen)
    scheme: Any = schemes.create(chosen, given)
    assert state.epoch == 1
    bound = solution_error(scheme, given)
    assert bound < (1e-3 if precision == "float32" else 1e-10) * np.linalg.norm(given.ridge_solution()), (
        "or it is empty"
    )
    assert np.linalg.norm(state.model - given.ridge_solution()) <= bound


@pytest.mark.parametrize("solver", ["gradient-descent", "nesterov", "conjugate-gradients"])
def test_every_solver_is_served_and_only_the_first_epoch_costs_anything(solver: str) -> None:
    """Later epochs ask nobody: no bits, no time but the server's own d^2 c multiplications."""
    chosen = wanted({"training.solver": solver})
    state = trained(shared(), chosen)
    columns = state.history.columns
    assert state.epoch == 5
    assert columns["loss"][-1] < columns["loss"][0]
    assert [bits > 0 for bits in columns["up_bits"]] == [True] + [False] * 4
    assert columns["down_bits"] == columns["device_macs"] == [0] * 5, "the first epoch is computed beforehand"
    assert columns["server_macs"][1:] == [D * D * C] * 4
    assert np.diff(columns["time"]) == pytest.approx([D * D * C / chosen.fleet.server_mac_rate] * 4, rel=1e-6)
    assert columns["replies"] == [4, 0, 0, 0, 0]


def test_bits_of_the_first_epoch() -> None:
    """A triangle and the moments, 32 bits each; keys, five envelopes of 100 bytes, and six shares of 9 words."""
    given, chosen = shared("float32"), wanted()
    state = trained(given, chosen)
    up = [state.history.rounds[number].up_bits.tolist() for number in state.history.questions()[0]]
    assert up == [[512] * N, [5 * 800] * N, [32 * (packed_size(D) + D * C)] * N, [6 * 9 * 32] * N]


def test_the_ring_can_be_chosen() -> None:
    narrow, wide = (
        driven(wanted({"schemes.one-shot.ring": ring}), shared(), {})[0].formats.gram for ring in ("Z_2^32", "Z_2^64")
    )
    assert wide.data_bits == narrow.data_bits + 32


@pytest.mark.parametrize("solver", ["gradient-descent", "conjugate-gradients"])
def test_a_run_that_is_stopped_goes_on_with_the_same_bits(
    solver: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sums are remembered: no device is asked again."""
    monkeypatch.setattr(runs, "_CHECKPOINT_SECONDS", -1.0)
    changes = {"scheme": "one-shot", "training.solver": solver, "training.epochs": 10}
    for report in (1, 4):
        with pytest.raises(Stopped):
            small_run(tmp_path / "parts", changes, progress=stop_at(report))
    small_run(tmp_path / "parts", changes)
    whole = small_run(tmp_path / "whole", changes)
    assert results(tmp_path / "parts") == results(whole.path)


def test_a_state_without_sums_asks_for_them() -> None:
    """Nothing was remembered before the first epoch was over."""
    scheme: Any = schemes.create(wanted(), shared())
    server = scheme.server()
    assert server.restore(server.state()) == schemes.Restored()
    assert len(server.ask(1, np.zeros((D, C))).requests) == N
    assert State.fresh(shared()).server == {}


def test_without_a_run_every_epoch_after_the_sum_is_counted() -> None:
    found = schemes.create(wanted(), shared()).counted(shared().shards, 4)
    assert found is not None
    assert [len(rounds) for rounds in found.epochs] == [4, 1, 1, 1]
    assert found.epochs[0][3].up_bits.tolist() == [6 * 9 * 32] * 6, "shares alone"
    later = [costs for rounds in found.epochs[1:] for costs in rounds]
    assert [(costs.asked.size, costs.quorum, costs.server_macs) for costs in later] == [(0, 0, D * D * C)] * 3


def test_seeds_of_spare_noise_are_counted_in_the_last_round() -> None:
    """Shares of nine words of 32 bits for each of nine devices, and a seed of 32 bytes."""
    private = {"privacy.epsilon": 5.0, "privacy.losses": 2, "privacy.clip_targets": 30.0}
    given = problem([5] * 9, features=8, outputs=2)
    chosen = wanted({"fleet.devices": fleet(*[1e6] * 9), **private})
    found = schemes.create(chosen, given).counted(given.shards, 1)
    assert found is not None
    assert found.epochs[0][3].up_bits.tolist() == [9 * 9 * 32 + 8 * 32] * 9


def test_the_masked_triangles_of_all_devices_take_memory() -> None:
    """Six triangles of 8 x 8 matrices, in words of eight bytes at most."""
    assert schemes.create(wanted(), shared()).memory == 6 * 36 * 8


def test_devices_may_receive_no_parcel_of_any_layout() -> None:
    assert schemes.create(wanted(), shared()).parcels(1) == ()


def test_what_is_refused() -> None:
    with pytest.raises(ScenarioError, match="at least 2 devices"):
        schemes.check(wanted({"fleet.devices": fleet(1e6)}))
    with pytest.raises(ScenarioError, match=r"schemes\.one-shot\.threshold = 3 must be between 4"):
        schemes.check(wanted({"schemes.one-shot.threshold": 3}))
    scheme: Any = schemes.create(wanted(), shared())
    with pytest.raises(DataError, match="exceeds the bound"):
        scheme.device(0, Shard(100 * shared().shards[0].x, shared().shards[0].y))


def test_compare_uses_the_solver_it_is_made_for(tmp_path: Path) -> None:
    rows = compare(small(), ["one-shot"], tmp_path / "out", silent)
    (row,) = (row for row in rows if row["scheme"] == "one-shot")
    assert (row["solver"], row["epochs"], row["survives_losses"]) == ("closed-form", 1, 1)


@pytest.mark.parametrize(("colluding", "losses", "least"), [(4, 2, None), (2, 3, None), (4, 3, 7), (3, 3, 7)])
def test_a_server_that_deviates_opens_no_two_noisy_sums(colluding: int, losses: int, least: int | None) -> None:
    """Nine devices of which c sign two lists: both hold t, if 2 t <= 9 + c, where t is 6, or 9 - L if that is more."""
    private = {"privacy.epsilon": 5.0, "privacy.losses": losses, "privacy.colluding": colluding}
    chosen = wanted({"fleet.devices": fleet(*[1e6] * 9), "privacy.clip_targets": 30.0, **private})
    given = problem([5] * 9, features=8, outputs=2)
    if least is None:
        assert schemes.create(chosen, given).survives_losses == losses
        return
    with pytest.raises(ScenarioError, match=f"open two sums, .*threshold = {least}, or lower") as error:
        schemes.create(chosen, given)
    assert is_one_sentence(str(error.value))
