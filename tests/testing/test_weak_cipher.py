"""The cipher that must fall falls to every attack on ciphertexts; an attack that fails here measures nothing."""

from pathlib import Path

import numpy as np
import pytest

import codedfl
from codedfl.security.attacks.left_kernel import LeftKernel
from codedfl.security.attacks.supports.basis_pursuit import BasisPursuit
from codedfl.security.attacks.supports.column_norms import ColumnNorms, UnexplainedNorms
from codedfl.security.attacks.supports.metzner_kapturowski import MetznerKapturowski
from codedfl.security.attacks.supports.single_row import SingleRow
from codedfl.security.attacks.supports.subspace_matching import SubspaceMatching
from codedfl.security.contract import Attack
from codedfl.security.scoring import Truth, score
from codedfl.security.views.kinds import ParcelView, RowView
from codedfl.testing.weak_cipher import WeakCipher
from security.ciphertexts import gram_matrix

ON_PARCELS = [LeftKernel(), MetznerKapturowski(), SubspaceMatching(), ColumnNorms(), UnexplainedNorms()]


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("attack", ON_PARCELS, ids=lambda attack: attack.name)
def test_every_attack_on_parcels_brings_it_down(attack: Attack[ParcelView], seed: int) -> None:
    rng = np.random.default_rng(seed)
    cipher = WeakCipher.draw(240, 100, 6, rng)
    A = gram_matrix(100, 150, rng)
    result = score(attack.run(cipher.parcel(A, rng), rng), Truth(A, cipher.positions, length=240))
    assert result.support_recovered
    assert result.verdict == "falls"


@pytest.mark.parametrize("index", [0, 50, 99])
@pytest.mark.parametrize("attack", [SingleRow(), BasisPursuit()], ids=lambda attack: attack.name)
def test_a_single_row_brings_it_down(attack: Attack[RowView], index: int) -> None:
    rng = np.random.default_rng(index)
    cipher = WeakCipher.draw(240, 100, 6, rng)
    a = gram_matrix(100, 150, rng)[index]
    result = score(attack.run(cipher.row(a, rng), rng), Truth(a[None, :], cipher.positions, length=240))
    assert result.support_recovered
    assert result.relative_error < 1e-9


def test_most_of_the_plaintext_stands_in_clear() -> None:
    rng = np.random.default_rng(3)
    cipher = WeakCipher.draw(60, 30, 3, rng)
    A = gram_matrix(30, 40, rng)
    clear = np.setdiff1d(np.arange(30), cipher.positions)
    assert np.allclose(cipher.encrypt(A, rng)[:, clear], A[:, clear], rtol=30 * np.finfo(np.float64).eps)
    assert (cipher.encrypt(np.zeros((2, 30)), rng)[:, cipher.positions] != 0).all()


@pytest.mark.parametrize(("n", "k", "t"), [(10, 10, 1), (10, 0, 1), (10, 5, 0), (10, 5, 5)])
def test_impossible_sizes_are_refused(n: int, k: int, t: int) -> None:
    with pytest.raises(ValueError, match=f"n = {n}, k = {k}, t = {t}"):
        WeakCipher.draw(n, k, t, np.random.default_rng(0))


def test_it_is_not_offered() -> None:
    product = Path(codedfl.__file__).parent
    sources = (path for path in product.rglob("*.py") if product / "testing" not in path.parents)
    assert not any("weak_cipher" in path.read_text(encoding="utf-8") for path in sources)
