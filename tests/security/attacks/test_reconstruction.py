"""Images from a Gram matrix: the objective, the search, and what is held against the truth."""

import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from benchmarks.pictures import membership_picture, save
from benchmarks.reconstruction import Ranked, Rebuilt, Unexplained, figure, ranking, reconstruct
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import check_grad
from sklearn.datasets import load_digits

from codedfl.data import FeatureMap
from codedfl.errors import MissingExtraError

IMAGES = np.random.default_rng(0).permutation(load_digits().data / 16)


def feature_map(dtype: str = "float64") -> FeatureMap:
    return FeatureMap.create("rbf", inputs=64, dimension=300, gamma=0.05, dtype=dtype)


def gram_of(images: np.ndarray, noise: float = 0.0) -> np.ndarray:
    x = feature_map().transform(images)
    A = x.T @ x
    drawn = np.random.default_rng(1).standard_normal(A.shape)
    drawn += drawn.T
    return A + drawn * (noise * np.linalg.norm(A) / np.linalg.norm(drawn))


@cache
def objective() -> Unexplained:
    return Unexplained(gram_of(IMAGES[:40]), feature_map())


@pytest.fixture(scope="module")
def rebuilt() -> Rebuilt:
    """A device with 40 images; the search starts from images that it does not hold."""
    members, starts, strangers = IMAGES[:40], IMAGES[100:106], IMAGES[200:240]
    images = reconstruct(gram_of(members, 1e-6), feature_map(), starts)
    return figure(starts, images, members, strangers)


class TestUnexplained:
    @given(seed=st.integers(0, 2**31))
    @settings(max_examples=20)
    def test_gradient_is_that_of_differences(self, seed: int) -> None:
        target = objective()
        point = np.random.default_rng(seed).random(64)
        slope = target.logarithm(point)[1]
        # forward differences of step h are off by h / 2 times the curvature, which for cosines of gamma 0.05 is about 1
        found = check_grad(lambda x: target.logarithm(x)[0], lambda x: target.logarithm(x)[1], point, epsilon=1e-6)
        assert found < 1e-4 * (1 + np.linalg.norm(slope))

    def test_share_by_projection(self) -> None:
        """Without noise it is the squared sine of the angle to the span of the members' features."""
        phi = feature_map().transform(IMAGES[:40])
        basis = np.linalg.qr(phi.T)[0]
        target = Unexplained(phi.T @ phi, feature_map(), error=0)
        for image in IMAGES[100:105]:
            (point,) = feature_map().transform(image[None])
            direct = 1 - np.sum((basis.T @ point) ** 2) / np.sum(point**2)
            assert target.share(image) == pytest.approx(direct, rel=1e-6)

    def test_members_are_explained_and_strangers_are_not(self) -> None:
        target = Unexplained(gram_of(IMAGES[:40], 1e-6), feature_map())
        inside = [target.share(image) for image in IMAGES[:40]]
        outside = [target.share(image) for image in IMAGES[100:140]]
        assert 10 * max(inside) < min(outside)

    def test_both_formats_of_the_map_mean_the_same(self) -> None:
        A = gram_of(IMAGES[:40])
        single, double = (Unexplained(A, feature_map(dtype)) for dtype in ("float32", "float64"))
        # the angle is off by the rounding of 64 products
        assert single.share(IMAGES[100]) == pytest.approx(double.share(IMAGES[100]), rel=1e-4)

    def test_only_cosines(self) -> None:
        with pytest.raises(ValueError, match="'none'"):
            Unexplained(np.eye(64), FeatureMap.create("none", inputs=64))


class TestReconstruct:
    def test_images_of_the_device_come_back(self, rebuilt: Rebuilt) -> None:
        found = rebuilt.member_distances < 0.1 * rebuilt.stranger_distances
        assert found.sum() >= 4, "of six starts"

    def test_pixels_stay_pixels(self, rebuilt: Rebuilt) -> None:
        assert rebuilt.images.shape == (6, 64)
        assert rebuilt.images.min() >= 0
        assert rebuilt.images.max() <= 1

    def test_another_matrix_gives_other_images(self, rebuilt: Rebuilt) -> None:
        """The control: images rebuilt from somebody else's matrix are not those of the device."""
        images = reconstruct(gram_of(IMAGES[300:340], 1e-6), feature_map(), rebuilt.starts[:3])
        assert figure(rebuilt.starts[:3], images, IMAGES[:40], IMAGES[300:340]).member_distances.min() > 0.5


class TestFigure:
    def test_nearest(self) -> None:
        images = np.array([[0.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]])
        members = np.array([[0.0, 0.0, 0.0, 1.0], [1.0, 1.0, 0.0, 0.0]])
        found = figure(images, images, members, np.array([[0.5, 0.5, 0.5, 0.5]]))
        np.testing.assert_array_equal(found.members, members)
        np.testing.assert_allclose(found.member_distances, [1, np.sqrt(2)])
        np.testing.assert_allclose(found.stranger_distances, [1, 1])
        assert found.points == 2

    def test_ranking(self) -> None:
        candidates = np.arange(5.0)[:, None]
        found = ranking(candidates, np.array([0.1, 0.9, 0.5, -1.0, 0.8]), np.array([False, True, True, False, True]), 2)
        np.testing.assert_array_equal(found.most[:, 0], [1, 4])
        np.testing.assert_array_equal(found.least[:, 0], [3, 0])
        assert found.most_are_members.all()
        assert not found.least_are_members.any()
        np.testing.assert_array_equal(found.stranger_scores, [0.1, -1.0])


class TestPicture:
    @pytest.fixture
    def ranked(self) -> Ranked:
        rng = np.random.default_rng(0)
        return ranking(IMAGES[:50], rng.random(50), np.arange(50) < 20, 2)

    def test_says_what_it_shows(self, rebuilt: Rebuilt, ranked: Ranked, tmp_path: Path) -> None:
        two = figure(rebuilt.starts[:2], rebuilt.images[:2], IMAGES[:40], IMAGES[200:240])
        picture = membership_picture(two, ranked, 20)
        assert len(picture.axes) == 4 * 2 + 2 * 2 + 1
        assert all(axes.get_ylabel() for axes in picture.axes[::2])
        assert picture.axes[-1].get_xlabel()
        save(picture, tmp_path / "picture.png")
        assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")

    def test_without_matplotlib(self, rebuilt: Rebuilt, ranked: Ranked, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
        with pytest.raises(MissingExtraError, match="plots"):
            membership_picture(rebuilt, ranked, 20)
