"""Stored figures of the audit: what attacks got, scheme by scheme, adversary by adversary.

``figures.json`` holds one figure for each scheme with its options, adversary, asset and unit, that of the attack that
got most on the least hidden device. ``codedfl attack --all --record FILE`` makes it again.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, final

from codedfl.errors import DataError, UsageError
from codedfl.scenario import Scenario, load
from codedfl.security.attempts import SECOND_RUN, Outcome
from codedfl.storage import write_text

ERROR, AREA = "relative error", "AUC"
_HYPOTHETICAL = ("errors of rank t", "with the true matrix")
"""Outcomes that are no figures of the scheme as it is."""


@final
@dataclass(frozen=True)
class Figure:
    """What one attack got, and the command that makes the figure again."""

    scheme: str
    options: Mapping[str, Any]
    """Settings of the scheme that differ from those of the preset."""
    adversary: str
    asset: str
    attack: str
    value: float
    unit: str
    """A relative error (0: all is known), or the area under the curve of membership (1: all is known)."""
    guess: float
    """What is reached without the view: the error of the best public guess, or 0.5."""
    verdict: str
    """falls, leaks or holds, by ``codedfl.security.scoring``."""
    device: int | None
    """The least hidden device; None where the attack is on all together."""
    epochs: int
    data: str
    given: str
    """What the attack is given."""
    command: str


@final
@dataclass(frozen=True)
class Case:
    """A scenario that is attacked, and the command for it."""

    scenario: Scenario
    options: Mapping[str, Any]
    """Settings that were changed."""
    command: str
    epochs: int | None = None

    @classmethod
    def of(cls, scenario: Scenario, settings: Mapping[str, Any], epochs: int | None = None) -> "Case":
        """Describe a scenario that was made from the preset of its name by these settings."""
        changes = [f"--set {name}={_shown(value)}" for name, value in settings.items()]
        words = ["codedfl attack", scenario.name, *changes, *([] if epochs is None else [f"--epochs {epochs}"])]
        options = {name: value for name, value in settings.items() if name.startswith("schemes.")}
        return cls(scenario, options, " ".join(words), epochs)

    @classmethod
    def preset(cls, name: str, scheme: str, options: Mapping[str, Any], epochs: int | None = None) -> "Case":
        """Return a preset with a scheme and its options, attacked for some epochs."""
        usual = load(name)
        settings = {**({} if usual.scheme == scheme else {"scheme": scheme}), **options}
        return cls.of(usual.with_settings(settings), settings, epochs)


def _shown(value: Any) -> str:
    """Return a setting as it is given on the command line."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


_WITHOUT_MASKS = {"schemes.sealed-coded.masks": False}
_WITHOUT_HAND_OVERS = {"schemes.sealed.delta": 1e9}
_SCHEMES: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("conventional", {}),
    ("minibatch", {}),
    ("drop-slowest", {}),
    ("deadline", {}),
    ("asynchronous", {}),
    ("parity", {}),
    ("code-based", {}),
    ("sealed", {}),
    ("sealed", _WITHOUT_HAND_OVERS),
    ("he", {}),
    ("sealed-coded", {}),
    ("sealed-coded", _WITHOUT_MASKS),
    ("coded-padded", {}),
    ("coded-padded", {"schemes.coded-padded.alpha": 2}),
    ("coded-padded", {"schemes.coded-padded.alpha": 19}),
    ("secagg", {}),
    ("secagg", {"schemes.secagg.inner": "sealed"}),
    ("one-shot", {}),
)
_Case = tuple[str, str, Mapping[str, Any], int | None]
SMALL: tuple[_Case, ...] = (
    *(("paper-quick", scheme, options, None) for scheme, options in _SCHEMES),
    # gradients change less from epoch to epoch later in the training
    ("paper-quick", "secagg", {"schemes.secagg.inner": "drop-slowest"}, 120),
    ("paper-quick", "secagg", {"schemes.secagg.inner": "deadline"}, 120),
)
"""Every scheme on digits with 300 features: minutes."""
FULL: tuple[_Case, ...] = (
    ("paper", "conventional", {}, None),
    ("sealed", "sealed", _WITHOUT_HAND_OVERS, None),
    ("sealed-coded", "sealed-coded", {}, None),
    ("sealed-coded", "sealed-coded", _WITHOUT_MASKS, None),
    ("paper", "coded-padded", {"schemes.coded-padded.alpha": 2}, None),
    ("paper", "coded-padded", {"schemes.coded-padded.alpha": 19}, None),
    ("paper", "one-shot", {}, None),
)
"""The paper's size, MNIST with 2000 features, where it matters."""


def figures_of(case: Case, outcomes: Iterable[Outcome]) -> list[Figure]:
    """Return the figures of one audit: for each adversary, asset and unit that of the attack that got most.

    What takes a second run has figures of its own.
    """
    best: dict[tuple[str, str, str, bool], Outcome] = {}
    for outcome in outcomes:
        unit = ERROR if outcome.score.auc is None else AREA
        missing = outcome.score.relative_error is None and outcome.score.auc is None
        if missing or outcome.attack == "null" or any(words in outcome.assumption for words in _HYPOTHETICAL):
            continue
        key = (outcome.adversary, outcome.asset, unit, SECOND_RUN in outcome.assumption)
        if key not in best or outcome.exposed > best[key].exposed:
            best[key] = outcome
    return [_figure(case, outcome, unit) for (_, _, unit, _), outcome in best.items()]


def _figure(case: Case, outcome: Outcome, unit: str) -> Figure:
    scenario, score = case.scenario, outcome.score
    value, guess = (score.auc, 0.5) if unit == AREA else (score.relative_error, score.guess_error)
    return Figure(
        scheme=scenario.scheme,
        options=case.options,
        adversary=outcome.adversary,
        asset=outcome.asset,
        attack=outcome.attack,
        value=float(f"{value:.4g}"),
        unit=unit,
        guess=float(f"{1.0 if guess is None else guess:.4g}"),
        verdict=score.verdict,
        device=outcome.device,
        epochs=outcome.epochs,
        data=f"{scenario.data.source}, {scenario.features.dimension} features",
        given=f"{outcome.view}, {outcome.assumption}" if outcome.assumption else outcome.view,
        command=case.command,
    )


@cache
def stored_figures() -> tuple[Figure, ...]:
    """Return the figures that come with the package."""
    return _read(
        resources.files("codedfl.security").joinpath("figures.json").read_text(encoding="utf-8"), "figures.json"
    )


def _read(text: str, name: str) -> tuple[Figure, ...]:
    try:
        return tuple(Figure(**entry) for entry in json.loads(text))
    except (ValueError, TypeError) as error:
        raise DataError(f"{name} holds no figures of attacks ({error}); name another file") from None


def kept_in(path: Path) -> tuple[Figure, ...]:
    """Return the figures of a file that may be written; none if there is no such file in its folder yet."""
    if not path.parent.is_dir():
        raise UsageError(f"'{path.parent}' is no folder; make it, or name another file")
    try:
        return _read(path.read_text(encoding="utf-8"), str(path)) if path.exists() else ()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"'{path}' cannot be read as figures of attacks ({error}); name another file") from None


def store(path: Path, figures: Sequence[Figure]) -> None:
    """Write figures to a file; those in it that came from the same commands are replaced, the others are kept."""
    kept = kept_in(path)
    made = {figure.command for figure in figures}
    entries = [*(figure for figure in kept if figure.command not in made), *figures]
    entries.sort(key=lambda figure: (figure.scheme, figure.command, figure.adversary, figure.asset, figure.unit))
    lines = ",\n".join(json.dumps(asdict(figure)) for figure in entries)
    write_text(path, f"[\n{lines}\n]\n")
