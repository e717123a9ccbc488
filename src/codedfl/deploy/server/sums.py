"""Sums of columns over real sites, under the scheme of the run (``codedfl.runs.sums`` says how), and the test set."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import final

import numpy as np
from jaxtyping import Float

from codedfl.data import Preparation, load_rows
from codedfl.deploy.protocol.fields import one_line
from codedfl.deploy.protocol.sums import ColumnFacts, SumOrder
from codedfl.deploy.protocol.task_facts import TaskFacts
from codedfl.deploy.server.board import Board
from codedfl.deploy.server.channel import Channel
from codedfl.deploy.server.remote import RemoteEngine
from codedfl.deploy.server.sessions import SessionTerms, SiteSession, describe_all
from codedfl.errors import DataError
from codedfl.progress import Progress
from codedfl.runs.selection import fold_scenario
from codedfl.runs.sums import sum_error, sum_scenario
from codedfl.scenario import Scenario
from codedfl.schemes import Public
from codedfl.task import feature_map, load_data
from codedfl.task.description import Description, likely_labels
from codedfl.task.folds import RowChoice
from codedfl.task.loading import declared_categories
from codedfl.task.objective import PublicObjective, TestSet
from codedfl.task.preparing import COLUMNS, Prepared, Summer, SumRequest, prepare
from codedfl.task.ranges import declared_preparation, declared_rows, ranged_preparation
from codedfl.task.shard import penalties, prepared_features
from codedfl.training import State, create_solver, first_gradient, train


@final
class RemoteSummer(Summer):
    """Asks sites for bounds, and adds their sums under the scheme."""

    def __init__(
        self, scenario: Scenario, channel: Channel, board: Board, terms: SessionTerms, progress: Progress
    ) -> None:
        self._channel = channel
        self.names = channel.sites
        self._board = board
        self._terms = terms
        self._progress = progress
        self._sums = 0
        self.scenario = scenario
        """The scenario with the categories that all sites use."""
        measured = self._measure(SumRequest(COLUMNS))
        if any(each.undeclared for each in measured):
            self.scenario = scenario.with_settings({"features.categories": _collected(channel.sites, measured)})
            measured = self._measure(SumRequest(COLUMNS))
        _check_columns(channel.sites, measured)
        self._dummies, self._kind = np.array(measured[0].dummies), measured[0].task.kind
        self.samples = sum(each.samples for each in measured)
        self.shape = len(measured[0].dummies), measured[0].outputs
        self.features = feature_map(self.scenario, self.shape[0])

    def prepared(self) -> Prepared | None:
        """Sum columns as often as it takes; return how all sites prepare theirs."""
        if not self.scenario.prepared:
            return None
        return prepare(self.scenario, self, self._dummies, regression=self._kind == "regression")

    def claims(self, request: SumRequest) -> Float[np.ndarray, "n b"]:
        """Return the bounds of each site."""
        found = [each.bounds for each in self._measure(request)]
        if len({len(bounds) for bounds in found}) > 1:
            raise DataError("sites publish bounds of different numbers of columns; check that versions agree")
        return np.array(found, np.float64)

    def add(self, request: SumRequest, scales: Float[np.ndarray, "k"]) -> Float[np.ndarray, "k"]:
        """Run the first epoch of the scheme on the sums."""
        self._progress("summing columns", self._sums, 0)
        channel, order = self._channel, SumOrder(request, self._sums, scales)
        wanted = sum_scenario(self.scenario, self._sums)
        self._sums += 1
        session = SiteSession(wanted, channel, self._board, self._terms, load=self.scenario, added=order)
        session.prepare()
        public = session.public
        objective = PublicObjective(
            samples=public.devices, shape=(2, len(scales)), dtype=public.dtype, ridge=0.0, kind="regression"
        )
        self.error = sum_error(session.scheme)
        engine, offline = self._engine(session), wanted.training.first_epoch_offline
        gradient = first_gradient(session.scheme, engine, State.fresh(objective), offline=offline)
        return np.asarray(-gradient[0] * public.devices)

    def fit(
        self, prepared: Prepared | None, rows: RowChoice, preparation: Preparation, count: float
    ) -> Float[np.ndarray, "l d c"]:
        """Train the models of all weights on some rows."""
        whole = prepared or Prepared(preparation, None, None)
        described = replace(whole, preparation=preparation)
        session = SiteSession(
            self.scenario, self._channel, self._board, self._terms, load=self.scenario, prepared=described, rows=rows
        )
        session.prepare()
        public, wanted = session.public, fold_scenario(self.scenario, count, sum(session.public.samples))
        objective = PublicObjective(
            samples=sum(public.samples),
            shape=(public.features, public.outputs),
            dtype=public.dtype,
            ridge=penalties(wanted.ridge, preparation),
            kind=self._kind,
        )
        state = train(objective, wanted, session.scheme, self._engine(session), State.fresh(objective))
        return create_solver(objective, wanted, state).models

    def _engine(self, session: SiteSession) -> RemoteEngine:
        shared = session.emulated_links and self.scenario.links.d2d_channel == "shared"
        return RemoteEngine(
            self._channel,
            time_scale=self._terms.time_scale,
            one_at_a_time=shared,
            seal=session.seal,
            has_accepted=session.has_accepted,
        )

    def _measure(self, request: SumRequest) -> list[ColumnFacts]:
        order, arrays = SumOrder(request).to_message()
        replies = describe_all(self._channel, {"scenario": self.scenario.to_toml(), **order}, arrays)
        return [ColumnFacts.read(site, reply) for site, reply in zip(self._channel.sites, replies, strict=True)]


def _collected(sites: Sequence[str], measured: Sequence[ColumnFacts]) -> list[dict[str, object]]:
    """Return the union of the categories that all sites have found, in the order of their columns."""
    found: dict[str, set[str]] = {}
    for site, each in zip(sites, measured, strict=True):
        if each.categories is None:
            raise DataError(
                f"{site} has text columns, whose categories nobody declares; declare features.categories in the "
                "scenario, or let every owner set share_names = true"
            )
        for name, values in each.categories.items():
            found.setdefault(name, set()).update(values)
    return [{"column": name, "values": sorted(values)} for name, values in found.items()]


def _check_columns(sites: Sequence[str], measured: Sequence[ColumnFacts]) -> None:
    first = measured[0]
    for site, each in zip(sites, measured, strict=True):
        if (each.columns, each.dummies, each.outputs) != (first.columns, first.dummies, first.outputs):
            raise DataError(
                f"the columns of {site} ({len(each.dummies)} inputs) are not those of {sites[0]} "
                f"({len(first.dummies)}); give all sites the same columns by name and order"
            )
        if not each.task.alike(first.task):
            words = one_line(f"{each.task}; {first.task}")
            raise DataError(f"{site} and {sites[0]} differ in their task ({words}); set the same kind and data.classes")


def ranged(scenario: Scenario, public: Public, task: TaskFacts, progress: Progress) -> Preparation:
    """Return how sites prepare columns by declared ranges; refuse sites with another number of features."""
    if scenario.data.elsewhere:
        found: Preparation | None = declared_preparation(scenario, public.outputs, regression=not task.classes)
    else:
        found = ranged_preparation(scenario, load_data(scenario, progress))
    assert found is not None  # noqa: S101 - the scenario has ranges
    linear, constants = scenario.features.kind == "none", 0 if found.constant is None else 1
    expected = (len(found.shift) if linear else scenario.features.dimension) + constants
    if public.features != expected:
        raise DataError(f"sites have {public.features} features, but the scenario declares {expected}; check versions")
    return found


def load_test_set(
    scenario: Scenario,
    public: Public,
    task: TaskFacts,
    preparation: Preparation | None,
    progress: Progress,
) -> tuple[TestSet | None, Description | None]:
    """Load the scenario's test samples, if it has any, and what their columns are called."""
    data = scenario.data
    if data.elsewhere:
        if not data.test_source:
            return None, None
        rows = load_rows(
            Path(data.test_source),
            target=data.target or None,
            kind=task.kind,
            classes=task.known_names(data.classes or ()) or (),
            dtype="float64" if scenario.prepared else scenario.precision,
            categories=declared_categories(scenario),
            missing=scenario.features.missing,
        )
        rows, _ = declared_rows(scenario, rows)
        x, y, found = rows.x, rows.y, TaskFacts.of(rows.kind, rows.classes, share=True)
        named, labels = rows.columns, likely_labels(rows.classes)
        described = Description.create(x.shape[1], public.outputs, named, (), labels, preparation=preparation)
    else:
        loaded = load_data(scenario, progress)
        x, y, found = loaded.x_test, loaded.y_test, TaskFacts.of(loaded.kind, loaded.class_names, share=True)
        described = Description.of_data(loaded, preparation)
    if not found.alike(task):
        raise DataError(one_line(f"the server's test set ({found}) does not match the sites' data ({task})"))
    inputs = x.shape[1] if preparation is None else len(preparation.shift)
    features = feature_map(scenario, inputs)
    if x.shape[1] != inputs or features.dimension + described.constants != public.features:
        raise DataError(f"the server's test set has {x.shape[1]} inputs, which are not the sites'; use another")
    if not len(x):
        return None, described
    return TestSet(prepared_features(x, features, preparation), y, task.kind, preparation), described
