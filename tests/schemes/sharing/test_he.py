"""Homomorphic encryption in place of the paper's cipher: both backends are one scheme, and say what they protect."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codedfl import schemes
from codedfl.cipher.ckks import keys as ckks
from codedfl.cipher.ckks.lattice import Lattice
from codedfl.errors import CipherError, MissingExtraError, ScenarioError
from codedfl.runs import directory as runs
from codedfl.schemes import Public, Transfer, Work
from codedfl.schemes.sharing.he import ENCRYPTED_FEATURES
from rundirs import Stopped, results, small_run, stop_at
from schemes.residues import carry, centred, decoded, integers, is_exact, set_up, wanted
from tiny import is_one_sentence, problem, trained

needs_tenseal = pytest.mark.skipif(not ckks.installed(), reason="TenSEAL is not installed")
BACKENDS = [pytest.param("ckks", marks=needs_tenseal), "costs"]
RATES = (4e7, 2e7, 1e7, 1e7, 1e7, 5e6)


def chosen(backend: str, **changes: Any) -> Any:
    options = {"schemes.he": {"backend": backend, "delta": changes.pop("delta", 1e-2)}, "training.epochs": 6}
    return wanted("he", options | changes, rates=RATES)


@pytest.fixture
def without_tenseal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tenseal", None)


@needs_tenseal
@pytest.mark.parametrize(
    ("features", "outputs", "devices", "first_offline"), [(1, 1, 2, True), (9, 3, 6, False), (20, 4, 6, True)]
)
def test_backends_give_the_same_models_and_the_same_costs(
    features: int, outputs: int, devices: int, first_offline: bool
) -> None:
    """Every number of a run: models to the last bit, bits of arrays really sent, counted work, and so all times."""
    given = problem([6] * devices, features=features, outputs=outputs)
    states = []
    for backend in ("ckks", "costs"):
        fleet = {"fleet.devices": [{"count": 1, "mac_rate": rate} for rate in RATES[:devices]]}
        states.append(
            trained(given, chosen(backend, delta=0.0, **fleet, **{"training.first_epoch_offline": first_offline}))
        )
    real, modelled = states
    assert real.history.handovers, "something was shared"
    assert real.model.tobytes() == modelled.model.tobytes()
    for name, values in real.history.columns.items():
        assert modelled.history.columns[name] == values, name
    assert real.history.stages == modelled.history.stages


@pytest.mark.parametrize("backend", BACKENDS)
def test_costs_are_those_of_the_ciphertexts(backend: str) -> None:
    """d = 9: five ciphertexts of 2 * 4096 words of 60 bits; a reply of three classes has three."""
    given = problem([6] * 6, features=9, outputs=3)
    scheme: Any = schemes.create(chosen(backend), given)
    server, devices, transfers, parcels = set_up(scheme, given.shards)
    assert {parcel["moments"].nbytes for parcel in parcels} == {2 * 61440}
    assert {transfer.grant["key"].nbytes for transfer in transfers} == {8 * 4 * 4096}
    request = server.ask(2, np.ones(given.shape)).requests[0]
    assert (request["model"].dtype, request["model"].shape) == (np.uint32, (3, 9))
    works = [Work(), Work()]
    before = devices[0].reply(2, request, works[0])
    late = dict.fromkeys(range(6), 0.0) | {3: 9.0, 4: 8.0}
    moves = server.after_epoch(2, late, ()).transfers
    (first, *_) = carry(devices, moves)
    assert first["gram"].nbytes == 5 * 61440
    after = devices[moves[0].recipient].reply(2, request, works[1])
    assert before["product"].nbytes == after["product"].nbytes == 3 * 61440
    assert works[0].macs == works[1].macs == 3 * 5 * 8192, "whatever was received"


@pytest.mark.parametrize("backend", BACKENDS)
def test_products_are_exact_while_data_move(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = decoded(monkeypatch)
    given = problem([6] * 6, features=9)
    state = trained(given, chosen(backend))
    assert state.history.handovers
    scheme = schemes.create(chosen(backend), given)
    assert len(found) == 5
    for sent, product in found:
        assert is_exact(sent, product, scheme, given.shards)


def test_models_are_no_longer_than_noise_allows() -> None:
    """A model of one large entry would fill the budget alone; it gets fewer bits, and its point says so."""
    given = problem([6] * 6, features=300)
    scheme: Any = schemes.create(chosen("costs"), given)
    server = scheme.server()
    model = np.zeros(given.shape)
    model[3] = [1.0, -0.3, 1e-5]
    sent = server.ask(2, model).requests[0]["model"]
    steps = np.abs(centred(sent, 2**32)).sum(axis=1)
    longest = scheme.lattice.longest(6)
    assert scheme.formats.gram.model_budget > 2 * longest, "so that length decides"
    assert all(longest / 2 - 1 <= step <= longest for step in steps)


@pytest.mark.parametrize(
    ("backend", "solver"),
    [
        pytest.param("ckks", "gradient-descent", marks=needs_tenseal),
        ("costs", "gradient-descent"),
        ("costs", "conjugate-gradients"),
    ],
)
def test_a_stopped_run_ends_with_the_same_bits(
    backend: str, solver: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also under encryption: keys are drawn anew, and no result depends on them."""
    monkeypatch.setattr(runs, "_CHECKPOINT_SECONDS", -1.0)
    changes = {"scheme": "he", "training.solver": solver, "training.epochs": 6, "timing.repeats": 1}
    changes |= {"schemes.he": {"backend": backend, "delta": 1e-3}}
    for report in (3,) if backend == "ckks" else (1, 4):
        with pytest.raises(Stopped):
            small_run(tmp_path / "run", changes, progress=stop_at(report))
    small_run(tmp_path / "run", changes)
    whole = small_run(tmp_path / "whole", changes)
    assert results(tmp_path / "run") == results(whole.path)
    assert whole.summary["handovers"] > 0


def again(server: Any, *moved: tuple[int, int, int, int]) -> list[Transfer]:
    """The transfers of hand-overs (epoch, sender, recipient, support), as a resumed server repeats them."""
    stages = server.restore({"moved": np.array(moved)}).stages
    return [transfer for stage in stages for transfer in stage.transfers]


@needs_tenseal
def test_a_forwarded_parcel_stays_hidden_from_those_who_sent_before() -> None:
    """They can take their own ciphertexts away; what is left is one of the forwarding device, fresh and unreadable."""
    given = problem([6] * 6, features=8)
    scheme: Any = schemes.create(chosen("ckks"), given)
    server, devices, _, _ = set_up(scheme, given.shards)
    server.ask(2, np.ones(given.shape))
    moved = carry(devices, again(server, (2, 1, 0, 0), (2, 2, 0, 1), (3, 0, 3, -1)))
    lattice: Lattice = scheme.lattice
    one, other, forwarded = (lattice.from_bytes(parcel["gram"]) for parcel in moved)
    q = devices[3]._backend.key.q
    left = lattice.add(lattice.add(forwarded, q - one, q), q - other, q)
    secret = server._codec._opener._secret
    own = integers(given.shards[0].gram, scheme.formats.gram.data_bits)
    assert np.array_equal(secret.decrypt(left).reshape(-1, 2048)[:8, :8], own)
    with pytest.raises(CipherError):
        ckks.CkksSecretKey(lattice).decrypt(left)


def test_modelled_costs_protect_nothing_and_say_so() -> None:
    given = problem([6] * 6, features=8)
    scheme: Any = schemes.create(chosen("costs"), given)
    server, devices, _, _ = set_up(scheme, given.shards)
    (parcel,) = carry(devices, again(server, (2, 1, 0, 0)))
    clear = scheme.formats.gram.encode(given.shards[1].gram)
    assert np.array_equal(parcel["gram"][:, : 2 * 8 * 4].copy().view(np.uint32).reshape(8, 8), clear)
    for words in scheme.leakage().to_table().values():
        assert "encrypts NOTHING" in words
    assert "encrypts nothing" in scheme.verdict_reason


@needs_tenseal
def test_encryption_says_what_it_hides() -> None:
    words = schemes.create(chosen("ckks"), problem([6] * 6)).leakage()
    assert "NOTHING" not in "".join(words.to_table().values())
    assert words.devices.startswith("nothing from parcels, which are encrypted")


@pytest.mark.parametrize(("features", "encrypts"), [(ENCRYPTED_FEATURES, True), (ENCRYPTED_FEATURES + 1, False)])
def test_by_itself_it_encrypts_what_is_small(features: int, encrypts: bool) -> None:
    scheme: Any = schemes.create(chosen("auto"), problem([6] * 6, features=features))
    assert scheme.encrypts == (encrypts and ckks.installed())
    assert ("NOTHING" in scheme.leakage().server) != scheme.encrypts


@pytest.mark.usefixtures("without_tenseal")
def test_without_the_extra_costs_are_still_modelled() -> None:
    scheme: Any = schemes.create(chosen("auto"), problem([6] * 6))
    assert not scheme.encrypts
    assert trained(problem([6] * 6), chosen("auto")).epoch == 6


@pytest.mark.usefixtures("without_tenseal")
def test_without_the_extra_nobody_is_led_to_believe_in_encryption() -> None:
    with pytest.raises(MissingExtraError, match=r"pip install 'codedfl\[he\]'") as error:
        schemes.create(chosen("ckks"), problem([6] * 6))
    assert is_one_sentence(str(error.value))


@pytest.mark.parametrize(
    ("samples", "features", "said"),
    [
        ((6,), 4, "needs at least 2 devices"),
        ((6, 6), 16385, "does not fit 16385 features"),
        ((6,) * 30, 16384, "too much noise for 16384 features on 30 devices"),
    ],
)
def test_what_does_not_fit_is_refused(samples: tuple[int, ...], features: int, said: str) -> None:
    public = Public(samples, features, 3, np.dtype("float32"))
    with pytest.raises(ScenarioError, match=said) as error:
        schemes.SCHEMES["he"](public, chosen("costs").options()).check()
    assert is_one_sentence(str(error.value))
