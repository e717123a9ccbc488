"""Schemes are known by their names, each once."""

from typing import Any

import numpy as np
import pytest

from codedfl import schemes
from codedfl.errors import UsageError
from codedfl.scenario import SchemeOptions
from codedfl.scenario import scenario as scenario_module
from codedfl.schemes import SCHEMES, Scheme, create, register
from codedfl.schemes.plain.conventional import AveragingServer, GradientDevice
from codedfl.settings import setting
from tiny import is_one_sentence, problem, scenario


class HalfOptions(SchemeOptions):
    share: float = setting(default=0.5, above=0, high=1)


def half(name: str) -> type[Scheme[Any]]:
    """A scheme of a user's own: wait for a share of the devices."""

    class Half(Scheme[HalfOptions]):
        options_type = HalfOptions
        exact = False
        follows_timing = True
        verdict = "not encrypted"
        because = "Nothing is encrypted."

        def check(self) -> None: ...

        def device(self, index: int, shard: Any) -> Any:
            return GradientDevice(shard)

        def server(self) -> Any:
            wait_for = max(1, int(self.options.share * self.public.devices))
            return AveragingServer(self.public, wait_for, lambda epoch: self.public.samples)

        survives_losses = 0

        def leakage(self) -> Any: ...

        def exposures(self, transcript: Any, shards: Any) -> Any:
            return []

    Half.name = name
    return Half


@pytest.fixture(autouse=True)
def _own_registries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemes, "SCHEMES", dict(SCHEMES))
    monkeypatch.setattr(scenario_module, "_OPTIONS", dict(scenario_module._OPTIONS))


def test_the_schemes_of_the_foundation_are_there() -> None:
    assert {"conventional", "minibatch", "drop-slowest"} <= set(SCHEMES)
    assert all(scheme.name == name for name, scheme in SCHEMES.items())


def test_a_scheme_of_ones_own_is_known_to_scenarios() -> None:
    register(half("half"))
    chosen = scenario({"scheme": "half", "schemes.half.share": 0.2})
    made = create(chosen, problem([4] * 25))
    assert type(made) is schemes.SCHEMES["half"]
    assert made.server().quorum == 5


@pytest.mark.parametrize("name", ["minibatch", "conventional"])
def test_a_name_is_given_once(name: str) -> None:
    before, options = dict(schemes.SCHEMES), dict(scenario_module._OPTIONS)
    tables = {key: value.table for key, value in options.items()}
    with pytest.raises(UsageError) as error:
        register(half(name))
    assert f"'{name}'" in str(error.value)
    assert is_one_sentence(str(error.value))
    assert before == schemes.SCHEMES
    assert options == scenario_module._OPTIONS
    assert {key: value.table for key, value in options.items()} == tables


def test_everybody_knows_the_sizes_and_nothing_else() -> None:
    public = create(scenario({"scheme": "conventional"}), problem([4, 7] * 12 + [9], dtype="float32")).public
    assert public.samples == (4, 7) * 12 + (9,)
    assert (public.devices, public.features, public.outputs) == (25, 6, 3)
    assert public.dtype == np.float32
