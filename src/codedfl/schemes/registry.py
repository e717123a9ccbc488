"""The schemes by name: built-in, from installed packages (entry points), and from plug-in files.

A scheme is imported when it is first used. A package registers schemes in the entry point group ``codedfl.schemes``
(name -> class). A plug-in file calls :func:`register`, and ``load_plugin`` runs the file.
``plugin_files`` names the files that were run, for ``load_plugins`` in the processes that this one starts.
"""

import dataclasses
import importlib.util
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from codedfl.errors import EngineError, ScenarioError, UsageError
from codedfl.scenario import Scenario, SchemeOptions, use_options
from codedfl.settings import did_you_mean

if TYPE_CHECKING:
    from codedfl.cipher.masks.pairwise import KeyAgreement
    from codedfl.schemes.contract import Scheme
    from codedfl.schemes.messages import Layout, Message
    from codedfl.schemes.public import Public
    from codedfl.task import Problem

_BUILT_IN = {
    "conventional": "plain.conventional:Conventional",
    "minibatch": "plain.minibatch:Minibatch",
    "drop-slowest": "plain.drop_slowest:DropSlowest",
    "deadline": "plain.deadline:Deadline",
    "asynchronous": "plain.asynchronous:Asynchronous",
    "parity": "coded.parity:Parity",
    "coded-padded": "coded.coded_padded:CodedPadded",
    "code-based": "sharing.code_based:CodeBased",
    "sealed": "sharing.sealed:Sealed",
    "sealed-coded": "coded.sealed_coded:SealedCoded",
    "he": "sharing.he:Encrypted",
    "secagg": "aggregated.secagg:SecAgg",
    "one-shot": "aggregated.one_shot:OneShot",
}
_GROUP = "codedfl.schemes"


@final
class _Schemes(Mapping[str, "type[Scheme[Any]]"]):
    """The scheme classes by name, imported on first use."""

    def __init__(self) -> None:
        self.loaders: dict[str, Callable[[], type[Scheme[Any]]]] = {}
        self.files: dict[str, Path] = {}  # of the schemes of plug-ins
        self._loaded: dict[str, type[Scheme[Any]]] = {}
        self._discovered = False
        for name, place in _BUILT_IN.items():
            self.loaders[name] = EntryPoint(name, f"codedfl.schemes.{place}", _GROUP).load

    def _discover(self) -> None:
        """Find the schemes of installed packages once; each is imported on first use."""
        found, self._discovered = self._discovered, True
        for point in () if found else entry_points(group=_GROUP):
            self.add(point.name, partial(_load, point))

    def add(self, name: str, load: "Callable[[], type[Scheme[Any]]]") -> None:
        if name in self:  # also discovers the schemes of installed packages
            raise UsageError(f"a scheme called '{name}' is registered already; choose another name")
        self.loaders[name] = load

    def remove(self, name: str) -> None:
        del self.loaders[name]
        self._loaded.pop(name, None)
        self.files.pop(name, None)
        OPTIONS.forget(name)

    def __getitem__(self, name: str) -> "type[Scheme[Any]]":
        if name not in self._loaded:
            if name not in self:
                raise KeyError(name)
            self._loaded[name] = self.loaders[name]()
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        self._discover()
        return iter(self.loaders)

    def __contains__(self, name: object) -> bool:
        if name not in self.loaders:
            self._discover()
        return name in self.loaders

    def __len__(self) -> int:
        self._discover()
        return len(self.loaders)


def _load(point: EntryPoint) -> "type[Scheme[Any]]":
    try:
        return point.load()  # type: ignore[no-any-return]
    except Exception as error:
        raise UsageError(
            f"the scheme '{point.name}' of the installed package's entry point '{point.value}' cannot be imported "
            f"({type(error).__name__}: {error}); correct or remove the package"
        ) from error


@final
class _Options(Mapping[str, type[SchemeOptions]]):
    """The option classes by name of the scheme; each knows its table of the scenario."""

    def __init__(self) -> None:
        self._known: dict[str, type[SchemeOptions]] = {}

    def __getitem__(self, name: str) -> type[SchemeOptions]:
        if name not in self._known:
            options = SCHEMES[name].options_type
            if options is SchemeOptions or options.table:  # schemes that share a class must not share its table
                options = type(options.__name__, (options,), {})
            options.table = f"schemes.{name}"
            self._known[name] = options
        return self._known[name]

    def forget(self, name: str) -> None:
        self._known.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter(SCHEMES)

    def __contains__(self, name: object) -> bool:
        return name in SCHEMES

    def __len__(self) -> int:
        return len(SCHEMES)


SCHEMES = _Schemes()
OPTIONS = _Options()
use_options(OPTIONS)


def register(scheme: "type[Scheme[Any]]") -> None:
    """Register a scheme by its name, for scenarios and the command line."""
    SCHEMES.add(scheme.name, lambda: scheme)


def load_plugin(path: str | Path) -> None:
    """Run a Python file that registers schemes.

    Raises
    ------
    UsageError
        If the file is missing, cannot be run, registers nothing, or registers a name that is taken.
    """
    file = Path(path)
    if not file.is_file():
        raise UsageError(f"the plug-in '{path}' is not a file; give the path of a Python file that registers a scheme")
    before, name = set(SCHEMES), f"codedfl_plugin_{file.stem}"
    spec = importlib.util.spec_from_loader(name, None, origin=str(file))
    assert spec is not None  # noqa: S101 - only a loader that finds nothing gives None
    module = importlib.util.module_from_spec(spec)
    module.__file__ = str(file)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        exec(compile(file.read_bytes(), str(file), "exec"), vars(module))  # noqa: S102 - the user names the file
        if set(SCHEMES) == before:
            raise UsageError(f"the plug-in '{path}' registers no scheme; call codedfl.schemes.register(CLASS) in it")
    except BaseException as error:
        del sys.modules[name]
        for added in set(SCHEMES) - before:
            SCHEMES.remove(added)
        if isinstance(error, UsageError) or not isinstance(error, (Exception, SystemExit)):
            raise
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise UsageError(f"the plug-in '{path}' cannot be run ({reason}); correct it") from error
    SCHEMES.files |= dict.fromkeys(set(SCHEMES) - before, file.resolve())


def plugin_files() -> list[Path]:
    """Return the absolute paths of the plug-ins whose schemes are registered, in the order they were loaded."""
    return list(dict.fromkeys(SCHEMES.files.values()))


def load_plugins(paths: Iterable[Path]) -> None:
    """Load the plug-ins of the process that started this one, unless they are loaded already."""
    for path in paths:
        if path not in plugin_files():  # a spawned process runs the script that may have loaded them, too
            load_plugin(path)


def refuse_unknown(names: Iterable[str]) -> None:
    """Raise an error that names the first unknown scheme."""
    for name in names:
        if name not in SCHEMES:
            known = f"{', '.join(SCHEMES)}{did_you_mean(name, SCHEMES)}"
            raise UsageError(f"no scheme is called '{name}'; schemes are {known}")


def nominal(scenario: Scenario) -> "Scheme[Any]":
    """Return the scheme of a scenario before data are loaded, made from the fleet's size and the declared dimension.

    It is unchecked. Do not use what depends on the data, such as its number formats.
    """
    import numpy as np

    from codedfl.schemes.facts import known_delays
    from codedfl.schemes.public import Public

    facts = (1,) * scenario.fleet.size, scenario.features.dimension, 1, np.dtype(scenario.precision)
    public = Public(*facts, delays=known_delays(scenario), accuracy=scenario.accuracy)
    return _assembled(scenario, public, scenario.scheme)


def check(scenario: Scenario) -> None:
    """Refuse options that do not fit the fleet, and a solver that the scheme does not support, before loading data."""
    from codedfl.schemes.private import check_private
    from codedfl.solvers import SOLVERS

    scheme = nominal(scenario)
    for name in (scenario.scheme, *scenario.options().others):
        scenario.options(name).check_fleet(scenario.fleet.size)
    check_private(scenario, scheme)
    _check_loss(scenario, scheme)
    lacking = _lacking(scenario, scheme, scenario.training.solver)
    if lacking is not None:
        served = [name for name in SOLVERS if _lacking(scenario, scheme, name) is None]
        raise ScenarioError(
            f"training.solver = '{scenario.training.solver}' needs {lacking} one of the solvers {', '.join(served)}"
        )


def _check_loss(scenario: Scenario, scheme: "Scheme[Any]") -> None:
    """Refuse a loss other than the squared one where it cannot be computed."""
    loss = f"task.loss = '{scenario.task.loss}'"
    if scenario.task.loss == "squared":
        return
    if not scheme.uses_rows:
        raise ScenarioError(
            f"scheme = '{scheme.name}' trains with the squared loss only, not {loss}; choose conventional, or secagg "
            "with schemes.secagg.inner = 'conventional'"
        )
    for wrong, key, advice in (
        (
            scenario.intercept and not scenario.ranged,  # by ranges it is the coefficient of a constant
            "features.intercept",
            "set false: it shifts the targets",
        ),
        (scenario.training.start is not None, "training.start", "leave it out: it shifts the targets"),
        (
            scenario.private and scenario.privacy.release == "once",
            "privacy.release = 'once'",
            "set 'each-epoch': its gradients do not follow from sums that could be released once",
        ),
    ):
        if wrong:
            raise ScenarioError(f"{loss} does not go with {key}; {advice}")


def serves(scenario: Scenario, solver: str) -> bool:
    """Return whether the scheme of a scenario supports a solver."""
    return _lacking(scenario, nominal(scenario), solver) is None


def _lacking(scenario: Scenario, scheme: "Scheme[Any]", solver: str) -> str | None:
    """Return what the solver needs and does not have, with advice before a list of solvers; None if it has all."""
    from codedfl.solvers import SOLVERS

    elsewhere = f"which scheme = '{scheme.name}' does not provide; choose another scheme or"
    if SOLVERS[solver].stable_share is None and scenario.task.loss != "squared":
        return f"the squared loss, not task.loss = '{scenario.task.loss}'; choose"
    if SOLVERS[solver].stable_share is None and scenario.privacy.release == "each-epoch":
        return "gradients without noise, not privacy.release = 'each-epoch'; choose"
    if SOLVERS[solver].needs_sums and not scheme.sums:
        return f"the sums over all data at the server, {elsewhere}"
    inexact = SOLVERS[solver].needs_exact and not scheme.exact
    return f"the gradient of all data in every epoch, {elsewhere}" if inexact else None


def create(scenario: Scenario, problem: "Problem", *, agreement: "KeyAgreement | None" = None) -> "Scheme[Any]":
    """Make and check the scheme of a scenario for the shards of a problem.

    ``agreement`` is that of devices which are all simulated in this process; X25519 if it is not given.
    """
    from codedfl.schemes.facts import agree, describe

    # shards of one object are described once: planning has many devices with the same hollow data
    known = {
        id(shard): describe(scenario, shard, problem.start) for shard in {id(s): s for s in problem.shards}.values()
    }
    facts = [known[id(shard)] for shard in problem.shards]
    # with a first model, targets are what it does not explain, and the sums of columns say nothing about that
    owners = () if problem.raw is None else problem.raw.owners
    public = agree(scenario, facts, problem.prepared if problem.start is None else None, owners)
    return build(scenario, public if agreement is None else dataclasses.replace(public, agreement=agreement))


def build(scenario: Scenario, public: "Public") -> "Scheme[Any]":
    """Make and check the scheme of a scenario from what is public."""
    from codedfl.schemes.rounding import check_rounding

    check(scenario)
    scheme = _assembled(scenario, public, scenario.scheme)
    if public.announced is not None:
        _check_announced(public.announced, scheme)
    scheme.check()
    check_rounding(scheme)
    return scheme


def _check_announced(announced: "Message", scheme: "Scheme[Any]") -> None:
    """Refuse what does not have the layout that the scheme names, and numbers that are not finite."""
    import numpy as np

    from codedfl.schemes.messages import layout

    found, expected = layout(announced), dict(scheme.announcement_layout)
    if found != expected:
        raise EngineError(
            f"the server announces {_layout_words(found)}, but scheme = '{scheme.name}' needs "
            f"{_layout_words(expected)}; check that versions agree"
        )
    for name, array in announced.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise EngineError(f"the server announces '{name}' with numbers that are not finite; check the server")


def _layout_words(found: "Layout") -> str:
    words = (f"{name} ({dtype.name}, {' x '.join(map(str, shape))})" for name, (dtype, shape) in found.items())
    return ", ".join(words) or "nothing"


def _assembled(scenario: Scenario, public: "Public", name: str) -> "Scheme[Any]":
    """Make a scheme and the schemes that it wraps, all unchecked."""
    options = scenario.options(name)
    wrapped = [_wrapped(scenario, public, name, other) for other in options.others]
    return SCHEMES[name](public, options, *wrapped)


def _wrapped(scenario: Scenario, public: "Public", wrapper: str, name: str) -> "Scheme[Any]":
    if name in SCHEMES and (found := _inner(scenario, public, name)) is not None:
        return found
    possible = [each for each in SCHEMES if _inner(scenario, public, each) is not None]
    raise ScenarioError(
        f"schemes.{wrapper}.inner = '{name}' must be a scheme whose replies add up to a sum of known size, one of "
        f"{', '.join(possible)}{did_you_mean(name, possible)}"
    )


def _inner(scenario: Scenario, public: "Public", name: str) -> "Scheme[Any] | None":
    """Return a scheme that can be wrapped; None if it uses more than the sum of replies or wraps another scheme."""
    if scenario.options(name).others:
        return None
    scheme = _assembled(scenario, public, name)
    return None if scheme.reply_sum is None else scheme
