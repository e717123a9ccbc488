"""A run in a local store of MLflow: settings, metrics of all epochs, tags and files.

MLflow keeps its former file store in maintenance mode and refuses it by default (3.10 and later), so the store is a
SQLite file. Nothing is sent anywhere: MLflow's telemetry is switched off.
"""

import json
import logging
import os
import re
import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from codedfl import __version__, storage
from codedfl.errors import MissingExtraError, RunDirectoryError, UsageError
from codedfl.report.exports.epochs import ends, origin, series
from codedfl.report.exports.places import check_folder, replace_folder
from codedfl.runs import Run

DATABASE, ARTIFACTS, MARK = "mlflow.db", "artifacts", "codedfl-export.json"
_FILES = ("scenario.toml", "summary.json", "model")
_ENVIRONMENT = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SQLALCHEMYSTORE_POOLCLASS": "NullPool"}
"""Without a pool, the database is closed after each use and can be moved."""
_NOT_IN_ADDRESSES = "?#%"
"""MLflow would take what follows for options, and write the store to another place."""
_MOST_METRICS, _MOST_PARAMETERS = 1000, 100
_LONGEST = 6000
_IDENTITY = "codedfl.scenario_id"


def write_mlflow(run: Run, out: Path) -> str:
    """Add a run to a store, which is made if there is none; return MLflow's name of the run.

    A store holds the runs of several exports. The same run again takes the place of the first.
    """
    place, identities = out.absolute(), []
    if wrong := next((letter for letter in _NOT_IN_ADDRESSES if letter in str(place)), None):
        raise UsageError(f"'{place}' has a '{wrong}', which the address of a store cannot hold; choose another folder")
    check_folder(out, _is_store)
    client_class, failure = _library()

    def fill(folder: Path) -> None:
        with _quiet():
            client = client_class(tracking_uri=f"sqlite:///{folder / DATABASE}")
            identities.append(_add(client, run, folder, place))
        storage.write_json(folder / MARK, {"program": "codedfl", "version": __version__, "place": str(place)})

    try:
        replace_folder(place, fill)
    except failure as error:
        reason = " ".join(str(error).split())[:200]
        raise RunDirectoryError(f"MLflow does not take the run ({reason}); choose another folder") from None
    return str(identities[0])


def _is_store(folder: Path) -> bool:
    """Return whether this command has made a folder; refuse one that was moved, since stores name places of files."""
    try:
        mark = json.loads((folder / MARK).read_text(encoding="utf-8"))
        made, own = str(mark["place"]), mark["program"] == "codedfl" and (folder / DATABASE).is_file()
    except storage.DAMAGED:
        return False
    if own and made != str(folder.absolute()):
        raise UsageError(f"'{folder}' was made as '{made}', where MLflow looks for its files; choose another folder")
    return own


def _library() -> tuple[Any, tuple[type[Exception], ...]]:
    """Return MLflow's client and what it raises."""
    try:
        with _quiet():
            import alembic as _alembic  # noqa: F401 - mlflow-skinny goes without, and its SQLite store does not
            import sqlalchemy.exc
            from mlflow import MlflowClient
            from mlflow.exceptions import MlflowException
    except ModuleNotFoundError:
        raise MissingExtraError("--to mlflow needs MLflow; install it with: pip install 'codedfl[tracking]'") from None
    return MlflowClient, (MlflowException, sqlalchemy.exc.SQLAlchemyError)


@contextmanager
def _quiet() -> Iterator[None]:
    """Switch off telemetry and log lines about tables of a new database."""
    before = {name: os.environ.get(name) for name in _ENVIRONMENT}
    loggers = [logging.getLogger(name) for name in ("mlflow", "alembic")]
    levels = [logger.level for logger in loggers]
    os.environ.update(_ENVIRONMENT)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecations between MLflow and its own dependencies
            for logger in loggers:
                logger.setLevel(logging.ERROR)
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _add(client: Any, run: Run, folder: Path, place: Path) -> str:
    experiment = _experiment(client, run.scenario.name, place)
    for earlier in client.search_runs([experiment], f"tags.`{_IDENTITY}` = '{run.summary['scenario_id']}'"):
        client.delete_run(earlier.info.run_id)
        shutil.rmtree(folder / ARTIFACTS / earlier.info.run_id, ignore_errors=True)
    began, times = origin(run), ends(run)
    name = f"{run.scenario.scheme} {run.summary['scenario_id']}"
    added = client.create_run(experiment, start_time=round(began * 1000), tags=_tags(run), run_name=name).info.run_id
    for batch in _batches(_parameters(run), _MOST_PARAMETERS):
        client.log_batch(added, params=batch)
    for batch in _batches(_metrics(run), _MOST_METRICS):
        client.log_batch(added, metrics=batch)
    _copy_files(run, folder / ARTIFACTS / added / "artifacts")
    client.set_terminated(added, "FINISHED", end_time=round((began + float(times[-1])) * 1000))
    return str(added)


def _experiment(client: Any, name: str, place: Path) -> str:
    """Return the experiment of a scenario's name; its files are looked for where the store will be."""
    found = client.get_experiment_by_name(name)
    if found is not None:
        return str(found.experiment_id)
    return str(client.create_experiment(name, artifact_location=(place / ARTIFACTS).as_uri()))


def _copy_files(run: Run, folder: Path) -> None:
    """Copy files to where MLflow will look for them; its client would write to the place that the store has later."""
    folder.mkdir(parents=True)
    for name in _FILES:
        source = run.path / name
        if source.is_dir():
            shutil.copytree(source, folder / name)
        elif source.is_file():
            shutil.copy(source, folder / name)


def _batches(entries: Sequence[Any], most: int) -> Iterator[Sequence[Any]]:
    return (entries[first : first + most] for first in range(0, len(entries), most))


def _tags(run: Run) -> dict[str, str]:
    """Return what is known of a run in words."""
    summary = run.summary
    words = {_IDENTITY: summary["scenario_id"], "codedfl.version": __version__, "scheme": summary["scheme"]}
    words |= {"secrecy": summary["verdict"], "metric": summary["metric"], "scored_on": summary["scored_on"]}
    words |= {f"leakage.{party}": text for party, text in summary["leakage"].items()}
    words |= {"noise": (summary["privacy"] or {}).get("statement"), "without_noise": summary.get("without_noise")}
    return {name: str(text) for name, text in words.items() if text is not None}


def _parameters(run: Run) -> list[Any]:
    """Return the settings of a run by dotted keys; of the options of schemes, those that count."""
    from mlflow.entities import Param

    table, scheme = run.scenario.to_table(), run.scenario.scheme
    used = {scheme, *run.scenario.options(scheme).others}
    table["schemes"] = {name: options for name, options in table["schemes"].items() if name in used}
    return [Param(_key(name), value[:_LONGEST]) for name, value in _flat(table)]


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value if isinstance(value, str) else json.dumps(value)


def _key(name: str) -> str:
    """Replace characters that MLflow refuses in names."""
    return re.sub(r"[^\w\-./ ]", "_", name, flags=re.ASCII)


def _metrics(run: Run) -> list[Any]:
    """Return the values of all epochs, at their virtual or real times, and the results."""
    from mlflow.entities import Metric

    began, epochs = origin(run), run.epochs["epoch"].tolist()
    stamps = [round((began + end) * 1000) for end in ends(run).tolist()]
    found = [
        Metric(_key(name), value, stamp, step)
        for name, values in series(run)
        for value, stamp, step in zip(values.tolist(), stamps, epochs, strict=True)
        if value == value
    ]
    return found + [Metric(_key(name), value, stamps[-1], epochs[-1]) for name, value in _results(run.summary)]


def _results(summary: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the numbers of a summary that other runs are compared by."""
    names = ("final_accuracy", "final_r2", "epsilon", "delta", "device_macs", "wall_seconds", "gradient_error")
    yield from ((name, float(summary[name])) for name in names if summary.get(name) is not None)
    yield from ((f"bits_sent/{link}", float(bits)) for link, bits in summary["bits_sent"].items())
    for target, seconds in summary["time_to_accuracy"].items():
        if seconds is not None:
            yield f"time_to_{summary['metric']}/{target}", float(seconds)
