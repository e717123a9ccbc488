"""Finding 5: control characters reach the organiser's terminal; an inbox takes 2 GiB a sender though sizes are known;
150,000 empty arrays in a frame take seconds.

Paths and names in messages, and residues outside the field, are in files of their own.
"""

import json
import logging
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codedfl import schemes
from codedfl.deploy.protocol import fields
from codedfl.deploy.protocol.wire import Frame, decode, encode
from codedfl.deploy.site import parcels
from codedfl.deploy.site.parcels import Inbox, Parcel
from codedfl.engines import VirtualEngine
from codedfl.errors import CodedflError, EngineError, ParcelError
from codedfl.network import DelayModel
from codedfl.schemes import SCHEMES, Public, layout
from codedfl.training import State, train
from contracts.test_engines import chosen, given
from fleets import fleet

ESCAPES = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202e\u200b\r\nWARNING all is well"


def test_no_control_character_of_a_site_reaches_terminal_log_or_summary(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A site answers its first request with an error that holds escape sequences, and with an array so named."""
    for answer in (Frame("error", {"reason": ESCAPES}), Frame("answer", {}, {ESCAPES: np.array([np.nan])})):
        with fleet(given()) as sites, caplog.at_level(logging.DEBUG):

            def reply(site: str, tag: int, payload: bytes, answer: Frame = answer) -> list[bytes]:
                echo = {name: decode(payload).fields[name] for name in ("session", "number")}
                changed = Frame(answer.kind, {**answer.fields, **echo}, answer.arrays)
                return [encode(changed) if site == "device-2" else payload]

            sites.faults.reply = reply
            with pytest.raises(CodedflError) as error:
                sites.deploy(chosen("sealed"), tmp_path / "run")
        shown = [str(error.value), *(record.getMessage() for record in caplog.records)]
        assert all(line.isprintable() for line in shown), shown


@pytest.mark.parametrize("letter", [chr(number) for number in (0, 7, 8, 27, 127, 0x85, 0x9B, 0x202E, 0x2066, 0xFEFF)])
def test_sentences_and_lines_are_printable(letter: str) -> None:
    assert str(EngineError(f"a{letter}b")) == "a?b"
    assert fields.one_line(f"a{letter}b").isprintable()


def test_an_inbox_takes_what_the_scheme_sends_and_no_byte_more() -> None:
    public = Public((10, 10, 10), 20, 3, np.dtype("float32"))
    scheme = schemes.build(chosen("sealed").with_settings({"fleet.devices": [{"count": 3, "mac_rate": 1e6}]}), public)
    inbox, words = Inbox(), scheme.formats.ring.dtype
    inbox.expect(scheme.parcels(0), public)
    inbox.put("device-2", Parcel(1, 0, {"gram": np.zeros(210, words)}))
    inbox.check_size("device-2", 210 * words.itemsize + 1000)
    for wrong in ({"gram": np.zeros(211, words)}, {"gram": np.zeros(210)}, {}, {"more": np.zeros(1, words)}):
        with pytest.raises(ParcelError, match="a parcel of device-3 has other arrays than this scheme sends"):
            inbox.put("device-3", Parcel(1, 1, wrong))
    with pytest.raises(ParcelError, match=r"a parcel of device-3 has 1000000 bytes, more than the \d+ of any"):
        inbox.check_size("device-3", 1_000_000)
    for number in (1, 2, 3):
        inbox.put("device-2", Parcel(1, number, {"gram": np.zeros(210, words)}))
    with pytest.raises(ParcelError, match="4 parcels of device-2"):
        inbox.put("device-2", Parcel(1, 4, {"gram": np.zeros(210, words)}))


@pytest.mark.parametrize("name", SCHEMES)
def test_every_parcel_of_a_scheme_has_a_declared_layout(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, made = chosen(name), given()
    if name in ("sealed", "code-based", "he"):  # so that devices hand data over
        asked = asked.with_settings({f"schemes.{name}.delta": 0.0, f"schemes.{name}.detect_from": 1})
    scheme, absorbed = schemes.create(asked, made), []
    devices: list[Any] = [scheme.device(index, shard) for index, shard in enumerate(made.shards)]
    for index, device in enumerate(devices):

        def absorb(sender: int, parcel: Any, *more: Any, index: int = index, take: Any = device.absorb_from) -> None:
            absorbed.append((index, layout(parcel)))
            take(sender, parcel, *more)

        monkeypatch.setattr(device, "absorb_from", absorb)
    engine = VirtualEngine(devices, DelayModel.create(asked.fleet, asked.links), seed=0, draw=0)
    train(made, asked, scheme, engine, State.fresh(made))
    assert bool(absorbed) == bool(scheme.parcels(0))
    for index, found in absorbed:
        declared = scheme.parcels(index)
        assert declared is not None
        assert found in declared


def test_an_undeclared_parcel_is_bounded_by_the_sizes_of_the_data() -> None:
    inbox, public = Inbox(), Public((10, 30), 20, 3, np.dtype("float64"))
    inbox.expect(None, public)
    inbox.put("device-2", Parcel(1, 0, {"rows": np.zeros((30, 23))}))
    with pytest.raises(ParcelError, match="more than the 39008 of any"):  # 32 bytes * 23 * (23 + 30)
        inbox.check_size("device-2", 39_008 + parcels._OVERHEAD + 1)


def test_150_000_empty_arrays_are_refused_before_any_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = [[f"a{number}", "|u1", [0]] for number in range(150_000)]
    header = json.dumps({"kind": "answer", "fields": {}, "arrays": listed}, separators=(",", ":")).encode()
    frame = b"CFL1" + struct.pack("<I", len(header)) + header
    made = []
    monkeypatch.setattr(np, "frombuffer", lambda *arguments, **more: made.append(arguments))
    with pytest.raises(EngineError, match=r"lists 150000 arrays, more than \d+"):
        decode(frame)
    assert not made
