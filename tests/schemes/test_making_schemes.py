"""How schemes are made from scenarios: nominal facts, which solvers and losses fit, what is announced and wrapped."""

from dataclasses import replace
from importlib.metadata import EntryPoint
from typing import Any

import numpy as np
import pytest

from codedfl import schemes
from codedfl.cipher.masks.pairwise import AgreementKey
from codedfl.cipher.masks.simulated import SimulatedKey
from codedfl.data.preparation import Preparation
from codedfl.errors import EngineError, ScenarioError, UsageError
from codedfl.scenario import Scenario, SchemeOptions
from codedfl.schemes import SCHEMES, Message, Public, registry
from codedfl.schemes.facts import known_delays
from codedfl.schemes.registry import OPTIONS, refuse_unknown
from codedfl.settings import setting
from codedfl.task import Problem
from codedfl.task.preparing import Prepared
from codedfl.testing.schemes import registered
from schemes.test_registry import half
from tiny import is_one_sentence, problem, scenario

SOLVERS = ["gradient-descent", "nesterov", "conjugate-gradients", "closed-form"]


def refused(wanted: Scenario, *said: str) -> None:
    with pytest.raises(ScenarioError) as error:
        schemes.check(wanted)
    assert is_one_sentence(str(error.value))
    for words in said:
        assert words in str(error.value)


class TestNames:
    def test_schemes_and_their_options_have_the_same_names(self) -> None:
        assert len(SCHEMES) == len(OPTIONS) == len(list(SCHEMES))
        assert list(SCHEMES) == list(OPTIONS)
        assert "sealed" in SCHEMES
        assert "sealed" in OPTIONS
        assert "unknown" not in SCHEMES
        assert "unknown" not in OPTIONS
        for names in (SCHEMES, OPTIONS):
            with pytest.raises(KeyError, match="unknown"):
                names["unknown"]

    def test_schemes_with_the_same_options_have_tables_of_their_own(self) -> None:
        assert SchemeOptions.table == ""
        with registered(half("one")), registered(half("other")):
            tables = {name: OPTIONS[name].table for name in ("one", "other", "conventional", "minibatch")}
            assert tables == {name: f"schemes.{name}" for name in tables}
            assert issubclass(OPTIONS["other"], OPTIONS["one"].__base__ or object)
            assert OPTIONS["other"](share=0.25).to_table() == {"share": 0.25}
            assert OPTIONS["one"] is OPTIONS["one"]

    def test_schemes_without_options_leave_the_base_class_as_it_is(self) -> None:
        bare = half("bare")
        bare.options_type = SchemeOptions
        with registered(bare):
            assert OPTIONS["bare"].table == "schemes.bare"
            assert OPTIONS["bare"] is not SchemeOptions
            assert SchemeOptions.table == ""

    @pytest.mark.parametrize("question", ["in", "list", "len"])
    def test_installed_schemes_are_found_on_any_question(self, question: str, monkeypatch: pytest.MonkeyPatch) -> None:
        point = EntryPoint("quick", "codedfl.schemes.plain.conventional:Conventional", "codedfl.schemes")
        monkeypatch.setattr(registry, "entry_points", lambda group: [point])
        fresh = registry._Schemes()
        if question == "in":
            assert "quick" in fresh
        elif question == "list":
            assert list(fresh)[-1] == "quick"
        else:
            assert len(fresh) == len(SCHEMES) + 1

    def test_a_name_that_was_given_back_is_free(self) -> None:
        class Wide(SchemeOptions):
            width: int = setting(default=3)

        first, second = half("again"), half("again")
        second.options_type = Wide
        for scheme, table in ((first, {"share": 0.5}), (second, {"width": 3})):
            with registered(scheme):
                assert SCHEMES["again"] is scheme
                assert OPTIONS["again"]().to_table() == table
                assert scenario({"scheme": "again"}).options().to_table() == table
            assert "again" not in SCHEMES

    def test_known_names_are_not_refused(self) -> None:
        refuse_unknown(SCHEMES)
        with pytest.raises(UsageError, match="no scheme is called 'nothing'; schemes are conventional, "):
            refuse_unknown(["sealed", "nothing", "neither"])


class TestNominalFacts:
    def test_are_one_row_for_each_device_and_one_output(self) -> None:
        wanted = scenario(
            {
                "scheme": "sealed",
                "fleet.devices": [{"count": 3, "mac_rate": 1e6}],
                "features.dimension": 30,
                "task.precision": "float32",
                "task.accuracy": 0.01,
            }
        )
        found = schemes.nominal(wanted)
        expected = Public((1, 1, 1), 30, 1, np.dtype("float32"), delays=found.public.delays, accuracy=0.01)
        assert found.public == expected
        assert found.public.delays is not None
        assert found.public.delays.key() == known_delays(wanted).key()
        assert type(found) is SCHEMES["sealed"]

    def test_wrapped_schemes_have_the_same(self) -> None:
        found = schemes.nominal(scenario({"scheme": "secagg", "schemes.secagg.inner": "drop-slowest"}))
        (inner,) = found.wrapped
        assert type(inner) is SCHEMES["drop-slowest"]
        assert inner.public is found.public


class TestSolvers:
    @pytest.mark.parametrize(
        ("changes", "served"),
        [
            ({"scheme": "conventional"}, SOLVERS[:3]),
            ({"scheme": "minibatch"}, SOLVERS[:2]),
            ({"scheme": "one-shot"}, SOLVERS),
            ({"scheme": "conventional", "task.loss": "softmax"}, SOLVERS[:2]),
            ({"scheme": "secagg", "privacy.epsilon": 1.0, "privacy.release": "each-epoch"}, SOLVERS[:2]),
            ({"scheme": "secagg", "privacy.epsilon": 1.0}, SOLVERS[:3]),
        ],
        ids=str,
    )
    def test_that_a_scheme_serves(self, changes: dict[str, Any], served: list[str]) -> None:
        given = {"data.held_out": 0.0, **changes}
        assert [name for name in SOLVERS if schemes.serves(scenario(given), name)] == served

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            (
                {"scheme": "minibatch", "training.solver": "conjugate-gradients"},
                "needs the gradient of all data in every epoch, which scheme = 'minibatch' does not provide; choose "
                "another scheme or one of the solvers gradient-descent, nesterov",
            ),
            (
                {"scheme": "conventional", "training.solver": "closed-form"},
                "needs the sums over all data at the server, which scheme = 'conventional' does not provide; choose "
                "another scheme or one of the solvers gradient-descent, nesterov, conjugate-gradients",
            ),
            (
                {"scheme": "conventional", "task.loss": "softmax", "training.solver": "conjugate-gradients"},
                "needs the squared loss, not task.loss = 'softmax'; choose one of the solvers gradient-descent, nest",
            ),
            (
                {
                    "scheme": "secagg",
                    "privacy.epsilon": 1.0,
                    "privacy.release": "each-epoch",
                    "training.solver": "conjugate-gradients",
                },
                "needs gradients without noise, not privacy.release = 'each-epoch'; choose one of the solvers grad",
            ),
        ],
        ids=str,
    )
    def test_others_are_refused_with_those_that_it_serves(self, changes: dict[str, Any], said: str) -> None:
        refused(scenario({"data.held_out": 0.0, **changes}), said)


class TestOtherLosses:
    def test_gradients_from_rows_have_them(self) -> None:
        schemes.check(scenario({"scheme": "conventional", "task.loss": "softmax"}))
        schemes.check(scenario({"scheme": "secagg", "task.loss": "softmax"}))

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"scheme": "sealed"}, "scheme = 'sealed' trains with the squared loss only, not task.loss = 'softmax'"),
            ({"scheme": "secagg", "schemes.secagg.inner": "sealed"}, "scheme = 'secagg' trains with the squared"),
            ({"scheme": "conventional", "features.intercept": True}, "does not go with features.intercept; set false"),
            ({"scheme": "conventional", "training.start": "model.npz"}, "does not go with training.start; leave it"),
            ({"scheme": "secagg", "privacy.epsilon": 1.0, "data.held_out": 0.0}, "does not go with privacy.release"),
        ],
        ids=str,
    )
    def test_refusals(self, changes: dict[str, Any], said: str) -> None:
        refused(scenario({"task.loss": "softmax", **changes}), said)
        schemes.check(scenario({**changes, "task.loss": "squared"}))


class TestFleets:
    @pytest.mark.parametrize(
        ("changes", "fits"),
        [
            ({"scheme": "drop-slowest", "schemes.drop-slowest.wait_for": 25}, True),
            ({"scheme": "drop-slowest", "schemes.drop-slowest.wait_for": 26}, False),
            ({"scheme": "conventional", "schemes.drop-slowest.wait_for": 26}, True),
            (
                {"scheme": "secagg", "schemes.secagg.inner": "drop-slowest", "schemes.drop-slowest.wait_for": 26},
                False,
            ),
        ],
        ids=str,
    )
    def test_options_of_the_scheme_and_of_what_it_wraps_fit(self, changes: dict[str, Any], fits: bool) -> None:
        if fits:
            schemes.check(scenario(changes))
        else:
            refused(scenario(changes), "schemes.drop-slowest.wait_for = 26")


class TestWrapping:
    @pytest.mark.parametrize("inner", ["secagg", "one-shot", "unknown", "he"])
    def test_only_schemes_whose_replies_add_up_can_be_wrapped(self, inner: str) -> None:
        wanted = scenario({"scheme": "secagg", "schemes.secagg.inner": inner})
        refused(wanted, f"schemes.secagg.inner = '{inner}' must be a scheme whose replies add up", "conventional, mini")

    @pytest.mark.parametrize("inner", ["conventional", "sealed", "drop-slowest"])
    def test_others_can(self, inner: str) -> None:
        found = schemes.nominal(scenario({"scheme": "secagg", "schemes.secagg.inner": inner}))
        assert [type(each) for each in found.wrapped] == [SCHEMES[inner]]


class TestCreation:
    given: Problem = problem([4] * 25)

    def test_devices_agree_by_x25519_unless_told(self) -> None:
        wanted = scenario({"scheme": "conventional"})
        assert schemes.create(wanted, self.given).public.agreement is AgreementKey
        assert schemes.create(wanted, self.given, agreement=SimulatedKey).public.agreement is SimulatedKey

    def test_bounds_are_those_of_all_shards(self) -> None:
        shards = list(self.given.shards)
        loud = type(shards[3])(8 * shards[3].x, shards[3].y)
        given = replace(self.given, shards=(*shards[:3], loud, *shards[4:]))
        claims = schemes.create(scenario({"scheme": "conventional"}), given).public.claims
        assert len(claims) == 25
        for shard, (feature, target) in zip(given.shards, claims, strict=True):
            assert feature / 2 < np.abs(shard.x).max() <= feature
            assert target == 1

    def test_targets_beside_a_first_model_are_larger(self) -> None:
        start = np.zeros(self.given.shape)
        start[0] = 2.0
        wanted = scenario({"scheme": "conventional"})
        found = schemes.create(wanted, replace(self.given, start=start)).public
        feature = np.array([claim[0] for claim in found.claims])
        assert [claim[1] for claim in found.claims] == pytest.approx(1 + 2 * feature, rel=1e-5)

    def test_energies_of_columns_say_nothing_of_residuals(self) -> None:
        """They are those of targets, not of what a first model leaves of them."""
        one = np.ones(6)
        columns = Preparation(one, one, None, None, None, np.zeros(3), np.ones(3))
        given = replace(self.given, prepared=Prepared(columns, 500.0, 100.0))
        for start, energies in ((None, (500.0, 100.0)), (np.zeros(given.shape), (None, None))):
            found = schemes.create(scenario({"scheme": "conventional"}), replace(given, start=start)).public
            assert (found.feature_energy, found.target_energy) == energies

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"scheme": "drop-slowest", "schemes.drop-slowest.wait_for": 26}, "wait_for = 26"),
            ({"scheme": "code-based", "schemes.code-based.n": 6}, "schemes.code-based does not fit 6 features"),
            ({"scheme": "conventional", "task.accuracy": 1e-17}, "could be off by"),
        ],
        ids=str,
    )
    def test_options_data_and_accuracy_are_checked(self, changes: dict[str, Any], said: str) -> None:
        with pytest.raises(ScenarioError, match=said):
            schemes.create(scenario(changes), self.given)

    def test_devices_have_the_names_of_their_owners(self) -> None:
        found = schemes.create(scenario({"scheme": "conventional"}), self.given).public
        assert found.names == ()
        assert found.name(3) == "device 3"


CODE = {"n": 12, "degree": 3, "t_tot": 2, "t": 1, "M": 2, "beta": 1}
BIG = {"scheme": "code-based", "schemes.code-based": CODE, "task.accuracy": 0.9}
LETTERS = np.ones((6, 12))


class TestAnnouncements:
    public = Public((4,) * 25, 6, 3, np.dtype("float64"))

    def build(self, announced: Message | None, scheme: str = "code-based") -> Any:
        return schemes.build(scenario({**BIG, "scheme": scheme}), replace(self.public, announced=announced))

    def test_what_the_scheme_names_is_taken(self) -> None:
        made = schemes.build(scenario(BIG), self.public)
        assert self.build(made.announcement()).public_key.fingerprint == made.public_key.fingerprint
        assert self.build({}, "sealed").announcement() == {}

    @pytest.mark.parametrize(
        ("announced", "said"),
        [
            ({}, r"announces nothing, but .* needs generator \(float64, 6 x 12\); check"),
            ({"generator": LETTERS.T}, r"announces generator \(float64, 12 x 6\), but"),
            ({"generator": LETTERS.astype("float32")}, r"announces generator \(float32, 6 x 12\), but"),
            ({"other": LETTERS}, r"announces other \(float64, 6 x 12\), but"),
            ({"generator": LETTERS, "word": np.zeros(3, np.int8)}, r"6 x 12\), word \(int8, 3\), but"),
        ],
    )
    def test_any_other_is_refused(self, announced: Message, said: str) -> None:
        with pytest.raises(EngineError, match=said) as error:
            self.build(announced)
        assert is_one_sentence(str(error.value))

    @pytest.mark.parametrize("value", [np.nan, np.inf])
    def test_one_number_that_is_not_finite_is_too_many(self, value: float) -> None:
        wrong = LETTERS.copy()
        wrong[2, 3] = value
        with pytest.raises(EngineError, match="announces 'generator' with numbers that are not finite"):
            self.build({"generator": wrong})
