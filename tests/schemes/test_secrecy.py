"""The verdict table of every scheme: complete, in the agreed words, and true to what the scheme does."""

from typing import Any

import pytest

from codedfl import schemes
from codedfl.scenario import load
from codedfl.schemes import SCHEMES, Scheme
from codedfl.schemes.secrecy import ADVERSARIES, ASSETS, BROKEN, CLEAR, ENCRYPTED, WORST_FIRST
from codedfl.security.verdicts import by_secrecy, secrecy_rank, verdict_table

SINGLE = ("gram", "gradient")


def scheme(name: str, devices: int = 25, **settings: Any) -> Scheme[Any]:
    options = {key.replace("__", "."): value for key, value in settings.items()}
    changed = load("paper").with_devices(devices).with_settings({"scheme": name, **options})
    return schemes.nominal(changed)


def cells(found: Scheme[Any]) -> dict[tuple[str, str], str]:
    return {(cell.adversary, cell.asset): cell.verdict for cell in found.secrecy()}


@pytest.mark.parametrize("name", SCHEMES)
class TestEveryScheme:
    def test_says_something_of_every_adversary_and_asset(self, name: str) -> None:
        found = scheme(name).secrecy()
        assert [(cell.adversary, cell.asset) for cell in found] == [
            (who, what) for who in ADVERSARIES for what in ASSETS
        ]
        assert {cell.verdict for cell in found} <= set(WORST_FIRST)
        assert all(cell.reason and not cell.reason.endswith(".") for cell in found)

    def test_says_when_to_allow_it(self, name: str) -> None:
        found = scheme(name)
        assert found.allowed_if
        assert not found.allowed_if.endswith(".")
        if found.verdict == BROKEN:
            assert "no private data" in found.allowed_if

    def test_no_noise_is_added_so_the_model_tells_members(self, name: str) -> None:
        verdict = cells(scheme(name))["model reader", "membership in the union"]
        assert verdict == ("not examined" if name == "he" else "leaks")

    def test_the_summary_agrees_with_the_table(self, name: str) -> None:
        """Where the server reads single replies it says so; where it sees sums only, a single device is hidden."""
        found = scheme(name)
        against = {cells(found)["server", asset] for asset in SINGLE}
        if found.verdict == "server sees sums":
            assert against == {"proven"}
        elif found.verdict in ("server sees replies", CLEAR, BROKEN):
            assert "not protected" in against
        if found.verdict in ENCRYPTED:
            assert {cells(found)["eavesdropper", asset] for asset in ASSETS} == {"proven"}


class TestTwoDevices:
    @pytest.mark.parametrize("name", ["conventional", "sealed", "sealed-coded", "secagg", "coded-padded"])
    def test_each_knows_the_gradient_of_the_other(self, name: str) -> None:
        assert cells(scheme(name, 3))["device", "gradient"] == "proven"
        assert cells(scheme(name, 2))["device", "gradient"] == "leaks"


class TestOptions:
    def test_one_copy_hides_nothing(self) -> None:
        found = cells(scheme("coded-padded", **{"schemes__coded-padded__alpha": 1}))
        assert found == cells(scheme("conventional"))

    def test_a_changing_cohort_tells_differences(self) -> None:
        """Sums over different devices can be subtracted from each other."""
        assert cells(scheme("secagg", schemes__secagg__inner="drop-slowest"))["server", "gradient"] == "leaks"
        assert cells(scheme("secagg"))["server", "gradient"] == "proven"

    def test_hand_overs_under_masks_are_those_of_the_inner_scheme(self) -> None:
        found, inner = scheme("secagg", schemes__secagg__inner="sealed"), scheme("sealed")
        assert cells(found)["server", "gradient"] == "proven"
        assert cells(found)["server and devices", "gram"] == cells(inner)["server and devices", "gram"] == "falls"
        assert "colludes with no device" in found.allowed_if

    def test_encryption_that_is_only_modelled_says_nothing(self) -> None:
        found = scheme("he", schemes__he__backend="costs")
        assert found.verdict == "models costs only"
        assert set(cells(found).values()) == {"not examined"}
        assert "proven" in cells(scheme("he", schemes__he__backend="ckks")).values()


class TestOrder:
    def test_what_tells_less_stands_first(self) -> None:
        ordered = by_secrecy(scheme(name) for name in reversed(list(SCHEMES)))
        names = [found.name for found in ordered]
        assert names == [found.name for found in by_secrecy(map(scheme, SCHEMES))]
        assert names.index("one-shot") < names.index("coded-padded") < names.index("sealed") < names.index("minibatch")
        assert names[-1] == "code-based"

    def test_an_unknown_scheme_stands_behind_all_examined_ones(self) -> None:
        class Unsaid(type(scheme("conventional"))):  # type: ignore[misc]
            verdict = "unknown"

            def secrecy(self) -> Any:
                return Scheme.secrecy(self)

        public = scheme("conventional").public
        unsaid = Unsaid(public, scheme("conventional").options)
        assert {cell.verdict for cell in verdict_table(unsaid)} == {"not examined"}
        assert secrecy_rank(unsaid) > secrecy_rank(scheme("code-based"))
