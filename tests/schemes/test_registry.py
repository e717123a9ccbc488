"""Schemes are known by their names, each once."""

import sys
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codedfl.errors import ScenarioError, UsageError
from codedfl.scenario import SchemeOptions
from codedfl.schemes import SCHEMES, Scheme, create, load_plugin, load_plugins, plugin_files, register, registry
from codedfl.schemes.plain.conventional import AveragingServer, GradientDevice
from codedfl.schemes.registry import OPTIONS
from codedfl.settings import setting
from codedfl.testing.schemes import registered
from tiny import is_one_sentence, problem, scenario, trained


class HalfOptions(SchemeOptions):
    share: float = setting(default=0.5, above=0, high=1)


def half(name: str) -> type[Scheme[Any]]:
    """A scheme of a user's own: wait for a share of the devices."""

    class Half(Scheme[HalfOptions]):
        options_type = HalfOptions
        exact = False
        follows_timing = True
        verdict = "not encrypted"
        verdict_reason = "Nothing is encrypted."

        def device(self, index: int, shard: Any) -> Any:
            return GradientDevice(shard)

        def server(self) -> Any:
            wait_for = max(1, int(self.options.share * self.public.devices))
            return AveragingServer(self.public, quorum=wait_for)

        def leakage(self) -> Any: ...

    Half.name = name
    return Half


def test_the_schemes_of_the_foundation_are_there() -> None:
    assert {"conventional", "minibatch", "drop-slowest"} <= set(SCHEMES)
    assert all(scheme.name == name for name, scheme in SCHEMES.items())


def test_a_scheme_of_ones_own_is_known_to_scenarios() -> None:
    with registered(half("half")):
        chosen = scenario({"scheme": "half", "schemes.half.share": 0.2})
        made = create(chosen, problem([4] * 25))
        assert type(made) is SCHEMES["half"]
    assert made.server().ask(1, np.zeros((6, 3))).quorum == 5
    assert "half" not in SCHEMES


@pytest.mark.parametrize("name", ["minibatch", "conventional"])
def test_a_name_is_given_once(name: str) -> None:
    before, options = dict(SCHEMES), dict(OPTIONS)
    tables = {key: value.table for key, value in options.items()}
    with pytest.raises(UsageError) as error:
        register(half(name))
    assert f"'{name}'" in str(error.value)
    assert is_one_sentence(str(error.value))
    assert before == dict(SCHEMES)
    assert options == dict(OPTIONS)
    assert {key: value.table for key, value in options.items()} == tables


def test_everybody_knows_the_sizes_and_nothing_else() -> None:
    public = create(scenario({"scheme": "conventional"}), problem([4, 7] * 12 + [9], dtype="float32")).public
    assert public.samples == (4, 7) * 12 + (9,)
    assert (public.devices, public.features, public.outputs) == (25, 6, 3)
    assert public.dtype == np.float32


PLUGIN = """
from codedfl.scenario import SchemeOptions
from codedfl.schemes import register
from codedfl.schemes.plain.conventional import AveragingServer, GradientDevice, PlainScheme

class Quick(PlainScheme[SchemeOptions]):
    name = "{name}"
    options_type = SchemeOptions
    exact = True

    def device(self, index, shard):
        return GradientDevice(shard)

    def server(self):
        return AveragingServer(self.public)

register(Quick)
"""


@pytest.fixture
def _clean() -> Iterator[None]:
    before = list(SCHEMES)
    yield
    for name in set(SCHEMES) - set(before):
        SCHEMES.remove(name)
    for module in ("quick", "also"):
        sys.modules.pop(f"codedfl_plugin_{module}", None)


@pytest.mark.usefixtures("_clean")
@pytest.mark.parametrize("kind", [str, Path])
def test_a_plugin_registers_its_schemes(kind: Callable[[Path], str | Path], tmp_path: Path) -> None:
    (tmp_path / "quick.py").write_text(PLUGIN.format(name="quick"))
    load_plugin(kind(tmp_path / "quick.py"))
    chosen = scenario({"scheme": "quick"})
    assert create(chosen, problem([4] * 25)).exact
    assert np.array_equal(
        *(trained(problem([4] * 25), scenario({"scheme": n})).model for n in ("quick", "conventional"))
    )


@pytest.mark.usefixtures("_clean")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "is not a file"),
        ("import nosuchmodule", "cannot be run .ModuleNotFoundError"),
        ("def (", "cannot be run .SyntaxError"),
        ("x = 1", "registers no scheme"),
        (PLUGIN.format(name="minibatch"), "a scheme called 'minibatch' is registered already"),
        (PLUGIN.format(name="quick") + "1 / 0", "cannot be run .ZeroDivisionError"),
        (PLUGIN.format(name="quick") + "raise SystemExit(0)", "cannot be run .SystemExit: 0"),
        ("raise ValueError('two\\nlines')", "cannot be run .ValueError: two lines"),
    ],
)
def test_a_wrong_plugin_is_refused_and_leaves_nothing(text: str | None, said: str, tmp_path: Path) -> None:
    before = list(SCHEMES)
    if text is not None:
        (tmp_path / "quick.py").write_text(text)
    with pytest.raises(UsageError, match=said) as error:
        load_plugin(tmp_path / "quick.py")
    assert is_one_sentence(str(error.value))
    assert list(SCHEMES) == before
    assert plugin_files() == []
    assert "codedfl_plugin_quick" not in sys.modules


@pytest.mark.usefixtures("_clean")
def test_whoever_interrupts_a_plugin_stops_everything(tmp_path: Path) -> None:
    (tmp_path / "quick.py").write_text(PLUGIN.format(name="quick") + "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        load_plugin(tmp_path / "quick.py")
    assert "quick" not in SCHEMES
    assert "codedfl_plugin_quick" not in sys.modules


@pytest.mark.usefixtures("_clean")
def test_plugins_are_known_by_absolute_paths_and_loaded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    wanted = []
    for name in ("quick", "also"):
        Path(f"{name}.py").write_text(PLUGIN.format(name=name))
        load_plugin(f"{name}.py")
        wanted.append(tmp_path.resolve() / f"{name}.py")
        assert plugin_files() == wanted
    load_plugins(wanted)
    with pytest.raises(UsageError, match="'also' is registered already"):
        load_plugin("also.py")
    assert plugin_files() == wanted
    SCHEMES.remove("quick")
    assert plugin_files() == wanted[1:]
    load_plugins(wanted)
    assert "quick" in SCHEMES


@pytest.mark.usefixtures("_clean")
def test_installed_packages_register_by_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are imported when they are used, and a broken one is told then."""
    points = [
        EntryPoint("quick", "codedfl.schemes.plain.conventional:Conventional", "codedfl.schemes"),
        EntryPoint("gone", "nosuchmodule:Scheme", "codedfl.schemes"),
    ]
    monkeypatch.setattr(registry, "entry_points", lambda group: points if group == "codedfl.schemes" else [])
    assert {"quick", "gone"} <= set(registry._Schemes()), "found on the first question"
    monkeypatch.setattr(SCHEMES, "_discovered", False)
    assert {"quick", "gone"} <= set(SCHEMES)
    assert SCHEMES["quick"] is SCHEMES["conventional"]
    assert scenario({"scheme": "quick"}).options().to_table() == {}
    with pytest.raises(UsageError, match=r"'gone' .* cannot be imported") as error:
        SCHEMES["gone"]
    assert is_one_sentence(str(error.value))


def test_a_wrong_name_gets_the_nearest() -> None:
    with pytest.raises(ScenarioError, match=r"scheme = 'minibach' must be one of .*did you mean 'minibatch'\?"):
        scenario({"scheme": "minibach"})
    with pytest.raises(UsageError, match=r"no scheme is called 'seald'; .*did you mean 'sealed'\?"):
        registry.refuse_unknown(["sealed", "seald"])
    chosen = scenario({"scheme": "secagg", "schemes.secagg.inner": "conventonal"})
    with pytest.raises(ScenarioError, match=r"inner = 'conventonal' .*did you mean 'conventional'\?"):
        registry.check(chosen)
