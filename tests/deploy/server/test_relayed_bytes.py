"""What a server relays says nothing: no row, no two neighbouring numbers, no seed and no key are in it, at any offset.

Every control switches a protection off and shows that the same search then finds what it looks for.
"""

import itertools
import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from codedfl import schemes
from codedfl.cipher.seals import pads
from codedfl.deploy.protocol.envelopes import Envelopes
from codedfl.deploy.protocol.wire import decode
from codedfl.deploy.server import sessions
from codedfl.deploy.site import session
from codedfl.runs import Run
from codedfl.runs import directory as runs
from codedfl.scenario import Scenario
from codedfl.schemes import SCHEMES, Message, Scheme, Work
from codedfl.schemes.aggregated.device import number_form
from codedfl.schemes.sharing.sealed import Sealed, SealedDevice
from codedfl.task import Problem
from contracts.test_engines import DEVICES, SIZES
from contracts.test_schemes import UNLESS, wanted
from fleets import InProcessFleet, fleet
from haystacks import LATTICE_BYTES, Drawn, Needles
from tiny import problem, shares

RIDGE = 0.01
RELAYING = ("sealed", "sealed-coded", "code-based", "he", "coded-padded", "secagg")
"""Schemes whose devices send each other parcels; ``secagg`` round ``sealed`` does."""
PADDED = ("sealed", "sealed-coded", "coded-padded")
RELAYED = [pytest.param(name, marks=UNLESS) if name == "he" else name for name in RELAYING]
MOMENTS_IN_CLEAR = ("code-based",)
"""Schemes whose server is told the moments of single devices, as their leakage says."""


def chosen(name: str, precision: str = "float64", **changes: Any) -> Scenario:
    """Everybody hands over as soon as it can."""
    own: dict[str, Any] = {"fleet.devices": DEVICES, "training.epochs": 4, "task.ridge": RIDGE}
    own["task.precision"] = precision
    if name == "secagg":
        own |= {"schemes.secagg.inner": "sealed", "schemes.sealed.delta": 0.0}
    if name == "coded-padded":
        own["schemes.coded-padded.alpha"] = 3
    if shares(name):
        own[f"schemes.{name}.delta"] = 0.0
    return wanted(name).with_settings(own | changes)


def made(precision: str = "float64") -> Problem:
    """Targets are real numbers: rows of zeros and a one would be found anywhere."""
    return problem(SIZES, features=12, outputs=3, ridge=RIDGE, kind="regression", dtype=precision)


def recorded(scenario: Scenario, data: Problem, path: Path) -> InProcessFleet:
    with fleet(data) as sites:
        sites.deploy(scenario, path, check=False)
    return sites


def needles(scenario: Scenario, data: Problem, *, pairs: bool, forms: Any = ()) -> Needles:
    """Data of every device in floating point and in every fixed point of the scheme."""
    found, scheme = Needles(), schemes.create(scenario, data)
    inner = getattr(scheme, "inner", scheme)
    own = getattr(inner, "formats", None)
    for shard in data.shards:
        matrices = {"features": shard.x, "targets": shard.y, "gram": shard.gram, "moments": shard.moments}
        for what, matrix in matrices.items():
            for sign in (matrix, -matrix):
                for dtype in ("<f4", "<f8"):
                    found.add_matrix(f"{what} as {dtype}", sign.astype(dtype), pairs=pairs)
                if own is not None:
                    form = own.moments if what in ("targets", "moments") else own.gram
                    _add_residues(found, f"{what} as residues", form.encode(sign), form.ring, pairs=pairs)
                for form in forms:
                    found.add_matrix(f"{what} as sums", form.encode(sign), pairs=pairs)
    return found


def _add_residues(found: Needles, kind: str, residues: np.ndarray, ring: Any, *, pairs: bool) -> None:
    found.add_matrix(kind, residues, pairs=pairs)
    if hasattr(ring, "to_wire"):
        found.add_matrix(kind, ring.to_wire(residues), pairs=pairs)


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Drawn:
    return Drawn(monkeypatch)


@contextmanager
def switched_off(*parts: str) -> Iterator[None]:
    """Without envelopes, pads, or the encryption of grants."""
    with pytest.MonkeyPatch.context() as patch:
        if "grants" in parts:
            patch.setattr(sessions, "close_grants", lambda site, member, run, request, grants: grants)
            patch.setattr(session, "open_grants", lambda site, key, own, run, request, closed: closed)
        if "envelopes" in parts:
            patch.setattr(Envelopes, "close", lambda self, recipient, contents: contents)
            patch.setattr(Envelopes, "open", lambda self, sender, envelope: envelope)
        if "pads" in parts:
            patch.setattr(pads.Pad, "_fill_piece", lambda self, stream, out, start: out.fill(0))
        yield


# what is relayed


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        *(pytest.param(name, "float64", marks=UNLESS if name == "he" else ()) for name in SCHEMES),
        ("sealed", "float32"),
        ("code-based", "float32"),
    ],
)
def test_nothing_can_be_read_in_what_is_relayed(
    name: str, precision: str, tmp_path: Path, known: Drawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither data nor secrets, nor the parcels themselves: a server that knows the pads could open those."""
    scenario, data = chosen(name, precision), made(precision)
    if name == "he":
        known.lattice(monkeypatch, schemes.create(scenario, data).lattice.degree)
    sites = recorded(scenario, data, tmp_path / "run")
    assert bool(sites.recording.relayed) == (name in RELAYING), "name a scheme that sends parcels among RELAYING"
    looked_for = known.add_to(needles(scenario, data, pairs=True))
    if name == "he":
        assert any(len(text) == LATTICE_BYTES for text in known.secrets)
    if name in RELAYING:
        assert looked_for.kinds["secrets"]
        assert looked_for.kinds["parcels"]
    assert looked_for.found_in(payload for _, _, payload in sites.recording.relayed) == set()


@pytest.mark.parametrize("name", [*RELAYED, "one-shot", "secagg round conventional"])
def test_no_row_and_no_secret_reaches_the_server(name: str, tmp_path: Path, known: Drawn) -> None:
    """In answers; but for moments, where the scheme says that the server is told those of single devices."""
    scheme, _, plain = name.partition(" round ")
    scenario, data = chosen(scheme, **({"schemes.secagg.inner": plain} if plain else {})), made()
    sites = recorded(scenario, data, tmp_path / "run")
    forms = [number_form(bits, len(SIZES)) for bits in _bits(sites)]
    assert bool(forms) == bool(plain)
    looked_for = known.add_to(needles(scenario, data, pairs=False, forms=forms))
    looked_for.kinds.pop("parcels", None)
    received = [payload for _, payload in sites.recording.received]
    told = {"moments as <f8"} if scheme in MOMENTS_IN_CLEAR else set()
    if told:
        assert "gradient of every device in clear" in schemes.create(scenario, data).leakage().server
    assert looked_for.found_in(received) == told


@pytest.mark.parametrize("name", ["sealed", "sealed-coded", "secagg"])
def test_seeds_are_granted_under_the_key_of_the_device(name: str, tmp_path: Path, known: Drawn) -> None:
    """Whoever sees the server's requests without their transport encryption finds no seed of a pad in them."""
    for sealed in (True, False):
        known.granted.clear()
        with switched_off(*(() if sealed else ("grants",))):
            sites = recorded(chosen(name), made(), tmp_path / f"run {sealed}")
        seeds = Needles()
        for text in known.granted:
            seeds.add("seeds", text)
        found = seeds.found_in(payload for _, payload in sites.recording.sent)
        assert found == (set() if sealed else {"seeds"}), "the second is a control"


def _bits(sites: InProcessFleet) -> set[int]:
    frames = [decode(payload) for _, payload in sites.recording.sent]
    return {int(frame.arrays["form"]) for frame in frames if "form" in frame.arrays}


@pytest.mark.parametrize("name", ["one-shot", "secagg"])
def test_shares_that_pass_the_server_are_closed(name: str, tmp_path: Path, known: Drawn) -> None:
    """Secure aggregation relays in questions and answers; shares are shown to the server only by their holders."""
    sites = recorded(chosen(name, **{"schemes.secagg.inner": "conventional"}), made(), tmp_path / "run")
    looked_for = Needles()
    for contents in known.shares:
        looked_for.add_secret("shares", contents)
    both = [payload for _, payload in (*sites.recording.sent, *sites.recording.received)]
    closed = [payload for payload in both if "envelopes" in decode(payload).arrays]
    assert len(closed) >= 2 * len(SIZES)
    assert looked_for.kinds["shares"]
    assert looked_for.found_in(closed) == set()
    shown = [payload for payload in both if "shares" in decode(payload).arrays]
    assert looked_for.found_in(shown) == {"shares"}, "a control"


# controls


@settings(max_examples=50)
@drawn(st.integers(0, 2**32 - 1), st.integers(0, 40), st.integers(0, 40), st.sampled_from(["<f4", "<f8", "<u4"]))
def test_the_search_finds_two_numbers_at_any_offset(seed: int, before: int, after: int, dtype: str) -> None:
    rng = np.random.default_rng(seed)
    matrix = rng.integers(1, 2**31, (3, 4)).astype(dtype)
    looked_for = Needles()
    looked_for.add_matrix("numbers", matrix, pairs=True)
    row, column = rng.integers(3), rng.integers(3)
    for pair in (matrix[row, column : column + 2], matrix[max(row - 1, 0) : max(row - 1, 0) + 2, column]):
        stream = rng.bytes(before) + pair.tobytes() + rng.bytes(after)
        assert looked_for.found_in([rng.bytes(30), stream]) == {"numbers"}
    assert looked_for.found_in([rng.bytes(300), b"", b"short"]) == set()


@pytest.mark.parametrize("name", RELAYED)
def test_without_envelopes_parcels_are_found(name: str, tmp_path: Path, known: Drawn) -> None:
    scenario, data = chosen(name), made()
    with switched_off("envelopes"):
        sites = recorded(scenario, data, tmp_path / "run")
    found = known.add_to(needles(scenario, data, pairs=True)).found_in(p for _, _, p in sites.recording.relayed)
    assert found == {"parcels"}, "the scheme's own protection is still there"


@pytest.mark.parametrize("name", PADDED)
def test_without_envelopes_and_pads_data_are_found(name: str, tmp_path: Path, known: Drawn) -> None:
    scenario, data = chosen(name), made()
    with switched_off("envelopes", "pads"):
        sites = recorded(scenario, data, tmp_path / "run")
    found = known.add_to(needles(scenario, data, pairs=True)).found_in(p for _, _, p in sites.recording.relayed)
    assert found == {"parcels", "gram as residues", "moments as residues"}


@pytest.mark.parametrize("closed", [True, False])
def test_whatever_a_device_puts_into_a_parcel_stays_between_devices(
    closed: bool, tmp_path: Path, known: Drawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device adds its data in every form, and secrets: each is found without envelopes, and only then."""
    scenario, data = chosen("sealed"), made()
    export, form = SealedDevice.export, schemes.create(scenario, data).formats
    shard = data.shards[1]

    def talkative(device: SealedDevice, grant: Message, work: Work) -> Message:
        told: dict[str, Any] = {"secrets": np.frombuffer(b"".join(known.secrets[-40:]), np.uint8)}
        for name, matrix in (("x", shard.x), ("y", shard.y), ("A", shard.gram), ("B", shard.moments)):
            residues = (form.moments if name in "yB" else form.gram).encode(matrix)
            told |= {f"{name}4": matrix.astype("<f4"), f"{name}8": matrix.astype("<f8"), f"{name}r": residues}
        return {**export(device, grant, work), **{f"told {name}": array for name, array in told.items()}}

    monkeypatch.setattr(SealedDevice, "export", talkative)
    monkeypatch.setattr(Sealed, "parcels", Scheme.parcels)  # of any layout, so that no recipient refuses them
    with switched_off() if closed else switched_off("envelopes"):
        sites = recorded(scenario, data, tmp_path / "run")
    looked_for = known.add_to(needles(scenario, data, pairs=True))
    found = looked_for.found_in(payload for _, _, payload in sites.recording.relayed)
    assert found == (set() if closed else set(looked_for.kinds))


# parcels that are altered


SMALL = problem([3, 4, 3], features=4, outputs=2, ridge=RIDGE)


def small(name: str) -> Scenario:
    devices = [{"count": 3, "mac_rate": 25e6}]
    changes = {"fleet.devices": devices, "training.epochs": 2, "task.precision": "float64", "task.ridge": RIDGE}
    return wanted(name).with_settings(changes | ({"schemes.sealed.delta": 1e9} if name == "sealed" else {}))


def model(run: Run) -> np.ndarray:
    return np.load(run.path / "model.npz")["theta"]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    """The models of virtual time."""
    folder = tmp_path_factory.mktemp("undisturbed")
    names = ("sealed", "sealed-coded")
    return {name: model(runs.execute(small(name), folder / name, problem=lambda: SMALL)) for name in names}


class Heard(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@contextmanager
def listening() -> Iterator[list[str]]:
    handler = Heard()
    logging.getLogger("codedfl").addHandler(handler)
    try:
        yield handler.lines
    finally:
        logging.getLogger("codedfl").removeHandler(handler)


@settings(max_examples=30)
@drawn(st.sampled_from(["sealed", "sealed-coded"]), st.integers(0, 30), st.integers(0, 10**6), st.integers(1, 255))
def test_a_parcel_with_one_altered_byte_is_refused_and_logged_and_changes_nothing(
    undisturbed: dict[str, np.ndarray], name: str, number: int, place: int, change: int
) -> None:
    hit: list[tuple[str, str]] = []
    numbers = itertools.count()

    def alter(sender: str, recipient: str, payload: bytes) -> bytes:
        if next(numbers) != number % EXCHANGED[name]:
            return payload
        hit.append((sender, recipient))
        at = place % len(payload)
        return payload[:at] + bytes([payload[at] ^ change]) + payload[at + 1 :]

    with tempfile.TemporaryDirectory() as folder, fleet(SMALL) as sites, listening() as lines:
        sites.faults.parcel = alter
        run = sites.deploy(small(name), Path(folder) / "run", check=False)
        found = model(run)
    assert np.array_equal(found, undisturbed[name])
    ((sender, recipient),) = hit
    refusals = [line for line in lines if "refused a parcel" in line]
    assert len(refusals) == 1
    assert refusals[0].startswith(f"{recipient} refused a parcel:")
    assert sender in refusals[0]
    assert run.summary["deployment"]["lost"] == {}


EXCHANGED = {"sealed": 2, "sealed-coded": 21}
"""Parcels of a run of three devices, none of which straggles: moments of two; 6 keys, 6 pieces, 3 blocks, 6 parts."""


@pytest.mark.parametrize("name", EXCHANGED)
def test_so_many_parcels_are_exchanged(name: str, tmp_path: Path) -> None:
    with fleet(SMALL) as sites:
        sites.deploy(small(name), tmp_path / "run")
    assert len(sites.recording.relayed) == EXCHANGED[name]
