"""Inputs that others make, their readers, and mutations of them by bytes and by structure, for fuzzing."""

import json
import struct
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, final

import numpy as np

from codedfl.errors import CodedflError

_NUMBERS = (True, -1, 0, 1 << 63, 1e308, -0.0)
_ODD: tuple[Any, ...] = (None, *_NUMBERS, "", "\x1b[2J", "a" * 4096, [], {}, [[]], {"a": None}, [0] * 100)
_BYTES = (b"", b"\x00", b"\xff" * 8, b"\x1b", b"[[[[", b"e999", b"\x80", b"{}", b'"', b"\n\n", b"-1")


@final
@dataclass(frozen=True)
class FuzzTarget:
    """A valid input, and what reads it; the reader raises nothing but a ``CodedflError``."""

    name: str
    valid: bytes
    read: Callable[[bytes], object]

    def refusal(self, given: bytes) -> str | None:
        """Return the sentence of a refusal, or None if the input is accepted; anything else is a crash."""
        try:
            self.read(given)
        except CodedflError as error:
            return str(error)
        return None


def mutated(valid: bytes, rng: np.random.Generator) -> bytes:
    """Return a mutation of an input: of the structure if it has one that is known, else of bytes."""
    if rng.random() < 0.5 and (changed := _restructured(valid, rng)) is not None:
        return changed
    found = bytearray(valid)
    for _ in range(int(rng.integers(1, 5))):
        start, kind = int(rng.integers(0, len(found) + 1)), int(rng.integers(0, 5))
        end = min(len(found), start + int(rng.integers(1, 64)))
        if kind == 0 and start < len(found):
            found[start] ^= 1 << int(rng.integers(0, 8))
        elif kind == 1:
            del found[start:end]
        elif kind == 2:
            found[start:start] = found[start:end] * int(rng.integers(1, 20))
        elif kind == 3:
            found[start:end] = _BYTES[int(rng.integers(0, len(_BYTES)))]
        else:
            found = found[:start]
    return bytes(found)


def _restructured(valid: bytes, rng: np.random.Generator) -> bytes | None:
    """Replace, remove or repeat a node of a JSON text or of the header of a frame; None if there is neither."""
    head, body = b"", valid
    if valid[:4] == b"CFL1" and len(valid) >= 8:
        (length,) = struct.unpack_from("<I", valid, 4)
        head, body, rest = valid[:4], valid[8 : 8 + length], valid[8 + length :]
    try:
        table = json.loads(body)
    except ValueError:
        return None
    text = json.dumps(_changed(table, rng)).encode()
    return head + struct.pack("<I", len(text)) + text + rest if head else text


def _changed(node: Any, rng: np.random.Generator) -> Any:
    """Return a tree in which one node is another."""
    if isinstance(node, (dict, list)) and node and rng.random() < 0.8:
        copy: Any = dict(node) if isinstance(node, dict) else list(node)
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = keys[int(rng.integers(0, len(keys)))]
        if rng.random() < 0.1:
            del copy[key]
        else:
            copy[key] = _changed(node[key], rng)
        return copy
    return _ODD[int(rng.integers(0, len(_ODD)))]


def _in_file(folder: Path, name: str, read: Callable[[Path], object]) -> Callable[[bytes], object]:
    """Return a reader of bytes that writes them to a file first."""
    path = folder / name

    def reader(given: bytes) -> object:
        path.write_bytes(given)
        return read(path)

    return reader


def fuzz_targets(folder: Path) -> list[FuzzTarget]:
    """Return every reader of bytes that other parties make, or that are carried between machines."""
    return [*_messages(), *_tables(folder), *_models(folder)]


def _messages() -> list[FuzzTarget]:
    from codedfl.deploy.protocol.envelopes import DeviceKey, Envelopes, Member, SessionKey
    from codedfl.deploy.protocol.task_facts import TaskFacts
    from codedfl.deploy.protocol.wire import Frame, decode, encode
    from codedfl.deploy.server.sessions import SiteDescription
    from codedfl.deploy.site.parcels import Parcel, read_peer_message
    from codedfl.scenario import Scenario
    from codedfl.testing.small import scenario

    fields = {"session": "s", "number": 3, "parcels": [[0, "b", False, None]], "nested": {"a": [1.5, None]}}
    frame = encode(Frame("export", fields, {"a": np.arange(6.0).reshape(2, 3), "b": np.zeros(0, np.uint8)}))
    parcel = Parcel(1, 0, {"gram": np.arange(10, dtype=np.uint32)}).to_bytes()
    keys, fresh = {site: DeviceKey() for site in "ab"}, {site: SessionKey() for site in "ab"}
    members = {site: Member.of(keys[site], fresh[site], "s", site) for site in "ab"}
    pins = {site: key.fingerprint for site, key in keys.items()}
    ends = {site: Envelopes(site, fresh[site], members[site], members, "s", "run", pins) for site in "ab"}
    facts: dict[str, Any] = {"version": version("codedfl"), "samples": 3, "features": 2, "outputs": 1}
    facts |= {
        "dtype": "float32",
        "largest_feature": 1.0,
        "largest_target": 1.0,
        **TaskFacts.of("regression", (), share=True).to_fields(),
    }
    facts |= {"member": members["a"].to_hex(), "nonce": "00" * 16, "mark": ""}

    def description(given: bytes) -> object:
        return SiteDescription.read("device-1", decode(given).fields)

    return [
        FuzzTarget("frame", frame, decode),
        FuzzTarget("parcel", parcel, read_peer_message),
        FuzzTarget("envelope", ends["a"].close("b", parcel), lambda given: ends["b"].open("a", given)),
        FuzzTarget("description of a site", encode(Frame("answer", facts)), description),
        FuzzTarget(
            "scenario",
            scenario().to_toml().encode(),
            lambda given: Scenario.from_toml(given.decode("utf-8", "replace"), "the server's scenario"),
        ),
    ]


def _tables(folder: Path) -> list[FuzzTarget]:
    import pyarrow
    import pyarrow.csv
    import pyarrow.parquet

    from codedfl.data import load_rows
    from codedfl.deploy.flare.sites import read_site

    columns = {"a": np.arange(8.0), "b": list("uvuvuvuv"), "y": np.arange(8) % 2}
    table, found = pyarrow.table(columns), []
    pyarrow.parquet.write_table(table, folder / "rows.parquet")
    pyarrow.csv.write_csv(table, folder / "rows.csv")
    np.savez(folder / "rows.npz", x=np.arange(16.0).reshape(8, 2), y=np.arange(8) % 2)
    (folder / "site.toml").write_text(
        'host = "a:b"\nkey = "device.key"\n[data]\nsource = "rows.csv"\n[peers]\nb = "c"\n'
    )
    for name in ("rows.parquet", "rows.csv", "rows.npz"):
        target = None if name.endswith("npz") else "y"
        read = _in_file(folder, f"given-{name}", lambda path, target=target: load_rows(path, target=target))  # type: ignore[misc]
        found.append(FuzzTarget(name, (folder / name).read_bytes(), read))
    site = folder / "site"
    site.mkdir(exist_ok=True)
    read = _in_file(site, "site.toml", lambda path: read_site(path.parent))
    return [*found, FuzzTarget("site.toml", (folder / "site.toml").read_bytes(), read)]


def _models(folder: Path) -> list[FuzzTarget]:
    from codedfl import runs
    from codedfl.deploy.protocol.envelopes import DeviceKey
    from codedfl.deploy.protocol.records import SCHEMA, check_record, read_records, signed
    from codedfl.task.model.reading import read_model
    from codedfl.testing.small import scenario

    place = Path(tempfile.mkdtemp(dir=folder)) / "run"
    changes = {"training.epochs": 2, "timing.draws": 2, "fleet.devices": [{"count": 2, "mac_rate": 1e6}]}
    runs.execute(scenario(changes), place)
    targets = [
        FuzzTarget(f"run/{name}", (place / name).read_bytes(), _in_file(place, name, lambda _: runs.load(place)))
        for name in ("summary.json", "epochs.parquet", "timings.npy", "scenario.toml")
    ]
    model = place / "model"
    targets += [
        FuzzTarget(f"model/{name}", (model / name).read_bytes(), _in_file(model, name, lambda _: read_model(model)))
        for name in ("model.json", "model.npz")
    ]
    signer = DeviceKey()
    record = {**dict.fromkeys(("run", "site", "agreed", "left", "ended"), "a"), "schema": SCHEMA}
    record |= {"key": signer.fingerprint, "public": signer.public.hex()}
    signer.write(folder / "device.key")

    def verify(path: Path) -> None:
        for each in read_records(path):
            check_record(each)

    text = json.dumps(signed(record, signer)).encode()
    targets.append(FuzzTarget("site-record.json", text, _in_file(folder, "site-record.json", verify)))
    key = _in_file(folder, "device.key", DeviceKey.read)
    return [*targets, FuzzTarget("device.key", (folder / "device.key").read_bytes(), key)]
