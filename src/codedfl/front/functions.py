"""What ``import codedfl`` offers as functions, which take names, paths and plain values."""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from codedfl import runs
from codedfl.errors import CodedflWarning, ScenarioError
from codedfl.front.notebook import shown
from codedfl.front.results import Comparison, SweepRows
from codedfl.progress import Progress
from codedfl.runs import Run
from codedfl.scenario import Scenario, load
from codedfl.schemes import SCHEMES, nominal
from codedfl.task import with_owners

if TYPE_CHECKING:
    from codedfl.security.attempts import Outcome
    from codedfl.studies.plan import Plan
    from codedfl.task.model import Model

_SHORTENED = 0.01
"""Share of rows from which on it is said that they are scaled down."""
_SHOWN = 10
"""Names of classes that a sentence lists."""
Chosen = Scenario | str | PathLike[str]
Settings = Mapping[str, Any] | None


def run(
    scenario: Chosen,
    out: str | PathLike[str] | None = None,
    settings: Settings = None,
    *,
    progress: Progress | None = None,
    **options: Any,
) -> Run:
    """Train once in virtual time, or load the run if it is finished.

    Parameters
    ----------
    scenario : Scenario or str or path
        A scenario, the name of a preset, or the path of a TOML file.
    out : str or path, optional
        The run directory; ``runs/NAME-SCHEME-ID`` if not given. A run that was stopped is resumed.
    settings : mapping, optional
        Changes of the scenario by dotted keys, as ``{"training.epochs": 100}``; ``codedfl settings`` lists them.
    progress : callable, optional
        Called with a stage, how much of it is done, and how much there is. If not given, notebooks show bars.
    **options
        Passed on to :func:`codedfl.runs.execute`.

    Returns
    -------
    Run
        Its ``summary``, ``epochs`` and ``model``.

    Raises
    ------
    CodedflError
        The scenario is wrong, its data cannot be used, the training diverges, or ``out`` holds something else.

    Examples
    --------
    >>> import codedfl, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = codedfl.run("paper-quick", folder + "/run", {"training.epochs": 5, "timing.draws": 10})
    ...     run.summary["epochs"], run.model.shape
    (5, (300, 10))
    """
    chosen = _chosen(scenario, settings)
    _warn(chosen, [chosen.scheme])
    place = runs.default_directory(chosen) if out is None else Path(out)
    with shown(progress) as report:
        done = runs.execute(chosen, place, progress=report, **options)
    classes = done.load_model().classes if chosen.private else ()
    for sentence in (*taken_as_public(chosen, classes), *shortened(done.summary)):
        warnings.warn(sentence, CodedflWarning, stacklevel=2)
    return done


def load_run(path: str | PathLike[str]) -> Run:
    """Load a finished run.

    Parameters
    ----------
    path : str or path
        A run directory.

    Returns
    -------
    Run
        The finished run.

    Raises
    ------
    RunDirectoryError
        There is no finished run, or it is damaged.

    Examples
    --------
    >>> import codedfl, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     done = codedfl.run("paper-quick", folder + "/run", {"training.epochs": 3, "timing.draws": 10})
    ...     codedfl.load_run(folder + "/run").summary == done.summary
    True
    """
    return runs.load(Path(path))


def load_model(path: str | PathLike[str]) -> "Model":
    """Load the model of a finished run, to predict with it.

    Parameters
    ----------
    path : str or path
        A run directory, its folder ``model``, or a copy of that folder; the data are not needed.

    Returns
    -------
    Model
        Its ``predict``, ``decision_function`` and ``outputs`` take raw rows: an array with the model's columns in their
        order, or a mapping, data frame or table with named columns in any order.

    Raises
    ------
    RunDirectoryError
        There is no model, or it is damaged.

    Examples
    --------
    >>> import codedfl, tempfile
    >>> from sklearn.datasets import load_digits
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = codedfl.run("paper-quick", folder + "/run", {"training.epochs": 30, "timing.draws": 10})
    ...     model = codedfl.load_model(folder + "/run")
    >>> model
    <Model of 10 classes from 64 columns, trained with minibatch>
    >>> model.predict(load_digits().data[:5] / 16)
    array([0, 1, 2, 3, 4])
    """
    from codedfl.task.model import Model

    return Model.load(Path(path))


def compare(
    scenario: Chosen,
    schemes: Sequence[str] = (),
    out: str | PathLike[str] | None = None,
    settings: Settings = None,
    *,
    progress: Progress | None = None,
) -> Comparison:
    """Train several schemes on the same data, fleet and links.

    Parameters
    ----------
    scenario, settings, progress
        As in :func:`run`.
    schemes : sequence of str, optional
        Names of schemes; all if none is given. The benchmark ``minibatch`` is always among them.
    out : str or path, optional
        Where tables, figure and runs go; ``out/compare-NAME`` if not given.

    Returns
    -------
    Comparison
        A list of rows, one a scheme, as ``codedfl compare --json`` prints them.

    Raises
    ------
    UsageError
        No scheme has one of the names.

    Examples
    --------
    >>> import codedfl, tempfile
    >>> few = {"training.epochs": 5, "timing.draws": 10}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [row["scheme"] for row in codedfl.compare("paper-quick", ["conventional"], folder, few)]
    ['minibatch', 'conventional']
    """
    from codedfl.studies import compare as studies

    chosen, names = _chosen(scenario, settings), list(schemes) or list(SCHEMES)
    _warn(chosen, names)
    place = Path("out") / f"compare-{chosen.name}" if out is None else Path(out)
    with shown(progress) as report:
        return Comparison(studies.compare(chosen, names, place, report))


def sweep(
    scenario: Chosen,
    over: Mapping[str, Sequence[Any]],
    out: str | PathLike[str] | None = None,
    settings: Settings = None,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
) -> SweepRows:
    """Train a grid of scenarios on all cores.

    Parameters
    ----------
    scenario, settings, progress
        As in :func:`run`.
    over : mapping
        Dotted keys and the values of each.
    out : str or path, optional
        Where tables and runs go; ``out/sweep-NAME`` if not given.
    workers : int, optional
        Number of processes; one a core if not given.

    Returns
    -------
    SweepRows
        A list of rows, one for each combination: its ``settings`` and the summary of its run.

    Raises
    ------
    UsageError
        A key or value is wrong; nothing has been run then.

    Examples
    --------
    >>> import codedfl, tempfile
    >>> few = {"training.epochs": 3, "timing.draws": 10}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rows = codedfl.sweep("paper-quick", {"links.loss": [0.1]}, folder, few, workers=1)
    >>> [row["settings"] for row in rows]
    [{'links.loss': 0.1}]
    """
    from codedfl.studies import sweep as studies

    chosen = _chosen(scenario, settings)
    _warn(chosen, map(str, over.get("scheme", [chosen.scheme])))
    place = Path("out") / f"sweep-{chosen.name}" if out is None else Path(out)
    with shown(progress) as report:
        return SweepRows(studies.sweep(chosen, over, place, report, workers))


def plan(
    scenario: Chosen,
    schemes: Sequence[str] = (),
    settings: Settings = None,
    *,
    samples: int | None = None,
    outputs: int | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> "Plan":
    """Predict the time of each scheme on a fleet without training, and recommend one.

    Parameters
    ----------
    scenario, settings, progress
        As in :func:`run`.
    schemes : sequence of str, optional
        Names of schemes; all if none is given.
    samples, outputs : int, optional
        The size of the data, where the data itself is not at hand.
    **options
        ``epochs``, ``draws`` and ``privacy`` of :func:`codedfl.studies.plan.plan`.

    Returns
    -------
    Plan
        Its ``offers``, quickest first, and the one ``recommended``.

    Raises
    ------
    UsageError
        No scheme has one of the names.

    Examples
    --------
    >>> import codedfl
    >>> plan = codedfl.plan("paper-quick", ["sealed-coded"], samples=1000, outputs=10, draws=10)
    >>> plan.recommended.scheme.name
    'sealed-coded'
    """
    from codedfl.studies import plan as studies

    chosen = _chosen(scenario, settings)
    with shown(progress) as report:
        shapes = studies.Shapes.of(chosen, samples, outputs, report)
        return studies.plan(chosen, shapes, names=schemes, progress=report, **options)


def attack(
    scenario: Chosen,
    attacks: Sequence[str] = (),
    settings: Settings = None,
    *,
    epochs: int | None = None,
    progress: Progress | None = None,
) -> "list[Outcome]":
    """Train for some epochs, attack what the scheme really sent, and score the attackers.

    Parameters
    ----------
    scenario, settings, progress
        As in :func:`run`.
    attacks : sequence of str, optional
        Names of attacks; all that fit if none is given.
    epochs : int, optional
        Epochs whose messages the attackers see; as many as decide the matter if not given.

    Returns
    -------
    list of Outcome
        One for each attack on each view, with its ``score``.

    Raises
    ------
    CodedflError
        The scenario is wrong or its data cannot be used.

    Examples
    --------
    >>> import codedfl
    >>> found = codedfl.attack("paper-quick", ["null"], {"scheme": "sealed"}, epochs=4)
    >>> {outcome.score.verdict for outcome in found}
    {'holds'}
    """
    from codedfl.security import audit
    from codedfl.task import Problem

    chosen = _chosen(scenario, settings)
    with shown(progress) as report:
        problem = Problem.build(chosen, report)
        return audit.attack_scenario(chosen, problem, names=attacks, epochs=epochs, progress=report)


def broken_ciphers(scenario: Scenario, names: Iterable[str]) -> Iterator[str]:
    """Yield one sentence for each scheme that has a broken cipher with the options of a scenario."""
    for name in dict.fromkeys(names):
        with suppress(ScenarioError):  # training such a scheme is refused with the same error
            if nominal(scenario.with_settings({"scheme": name})).verdict == "broken":
                yield f"the cipher of '{name}' is broken: whoever sees a ciphertext can compute the data under it"


def taken_as_public(scenario: Scenario, classes: Sequence[Any]) -> Iterator[str]:
    """Yield a sentence if the names of classes come from the data, which noise does not hide."""
    data = scenario.data
    if scenario.private and classes and not (data.named or data.tabular or data.classes):
        few = ", ".join(map(str, classes[:_SHOWN])) + (", ..." if len(classes) > _SHOWN else "")
        yield f"the names of the {len(classes)} classes ({few}) come from the data and are taken as public"


def shortened(summary: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence if clips change many rows of a simulation much, so that the model is one of other data."""
    for what, share in summary.get("shortened_rows", {}).items():
        if share > _SHORTENED:
            clip = summary["privacy"][f"clip_{what}"]
            yield (
                f"{share:.0%} of the rows have {what} more than twice as long as privacy.clip_{what} = {clip:g}, so "
                "they are scaled down to it; scale the columns, declare ranges, or raise it"
            )


def _chosen(given: Chosen, settings: Settings) -> Scenario:
    found = given if isinstance(given, Scenario) else load(given)
    return with_owners(found.with_settings(settings) if settings else found)


def _warn(scenario: Scenario, names: Iterable[str]) -> None:
    for sentence in broken_ciphers(scenario, names):
        warnings.warn(sentence, CodedflWarning, stacklevel=3)
