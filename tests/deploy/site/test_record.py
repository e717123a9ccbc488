"""The owner's record: what it says, that it verifies, that it goes on after an interruption, and the union."""

import json
from pathlib import Path
from typing import Any

import pytest

from codedfl.cli import main
from codedfl.deploy.protocol.envelopes import DeviceKey
from codedfl.deploy.protocol.records import RECORD, UNION, check_record, signed
from codedfl.deploy.protocol.wire import Frame, decode, encode
from codedfl.deploy.site.host import DeviceHost
from codedfl.errors import RecordError
from codedfl.runs import directory as runs
from codedfl.schemes.secrecy import ADVERSARIES, ASSETS
from contracts.test_engines import chosen, given
from deploy.server.test_interrupted_deployment import stopped
from deploy.site.test_host import Asker, host, reason
from fleets import fleet
from rundirs import strict_json
from tiny import is_one_sentence

PLACE = Path("records") / "run-1" / RECORD


def read(path: Path) -> dict[str, Any]:
    return dict(strict_json(path.read_text(encoding="utf-8")))


def recorded(folder: Path) -> dict[str, Any]:
    return read(folder / PLACE)


def kept(folder: Path, key: DeviceKey) -> DeviceHost:
    return host(key=key, folder=folder, server={"address": "fl.example.org:8002", "authority": "sha256:ab"})


def test_a_record_says_what_was_agreed_computed_sent_and_refused(tmp_path: Path) -> None:
    key = DeviceKey()
    asker = Asker(kept(tmp_path, key))
    asker.begin()
    sizes = [len(asker.host.handle(asker.round(epoch))) for epoch in (1, 2)]
    refusal = reason(decode(asker.host.handle(asker.round(1))))
    answer = asker.ask("forget", stage=None)
    record = recorded(tmp_path)
    assert record == answer.fields["record"]
    check_record(record, key.fingerprint)
    assert (record["site"], record["run"], record["scheme"]) == ("device-1", "run-1", "conventional")
    assert record["server"]["address"] == "fl.example.org:8002"
    assert record["agreed"]["cohort"] == {"device-1": key.fingerprint, "device-2": None}
    assert record["agreed"]["words"][0].startswith("scheme conventional")
    assert (record["computed"]["replies"], record["computed"]["last_epoch"]) == (2, 2)
    left = {row["kind"]: row for row in record["left"]}
    assert (left["reply"]["to"], left["reply"]["messages"], left["reply"]["bytes"]) == ("server", 2, sum(sizes))
    assert [row["what"] for row in record["refusals"]] == [refusal]
    assert record["ended"]["how"] == "finished"
    assert {(row["adversary"], row["asset"]) for row in record["could_learn"]} == {
        (adversary, asset) for adversary in ADVERSARIES for asset in ASSETS
    }
    assert (tmp_path / PLACE).parent.stat().st_mode & 0o077 == 0


def test_a_record_goes_on_in_another_process(tmp_path: Path) -> None:
    key = DeviceKey()
    first = Asker(kept(tmp_path, key))
    first.begin()
    first.host.handle(first.round(1))
    first.host.close()
    assert "stopped before the server ended the run" in recorded(tmp_path)["ended"]["how"]
    second = Asker(kept(tmp_path, key), session="s2")
    second.begin()
    assert recorded(tmp_path)["ended"]["how"] == "open"
    second.host.handle(second.round(2))
    second.ask("forget", stage=None)
    record = recorded(tmp_path)
    check_record(record, key.fingerprint)
    assert [each["session"] for each in record["sessions"]] == ["s1", "s2"]
    assert (record["computed"]["replies"], record["ended"]["how"]) == (2, "finished")


@pytest.mark.parametrize("text", ["", "[]", "{", '{"schema": 1}'])
def test_a_damaged_record_is_kept_apart(text: str, tmp_path: Path) -> None:
    (tmp_path / PLACE).parent.mkdir(parents=True)
    (tmp_path / PLACE).write_text(text, encoding="utf-8")
    Asker(kept(tmp_path, DeviceKey())).begin()
    check_record(recorded(tmp_path))
    (before,) = (tmp_path / PLACE).parent.glob("damaged-*")
    assert before.read_text(encoding="utf-8") == text


def test_runs_with_names_that_leave_the_folder_are_refused(tmp_path: Path) -> None:
    for name in ("../up", "", "a/b", ".hidden", "x" * 81):
        asker = Asker(kept(tmp_path, DeviceKey()))
        assert "name of the run is invalid" in reason(asker.ask("describe", **asker.described | {"run": name}))
    assert not (tmp_path / "records").exists()


def record_of(key: DeviceKey | None) -> dict[str, Any]:
    asker = Asker(host(key=key))
    asker.begin()
    return dict(asker.ask("forget", stage=None).fields["record"])


def altered(record: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {**record, **changes}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda record: altered(record, scheme="sealed"), "altered after it was signed"),
        (lambda record: altered(record, public=DeviceKey().public.hex()), "altered after it was signed"),
        (lambda record: altered(record, signature="00"), "altered after it was signed"),
        (lambda record: altered(record, signature=7), "altered after it was signed"),
        (lambda record: altered(record, schema=2), "its format is 2, not 1"),
        (lambda record: signed(altered(record, signature=None), None), "it is not signed"),
        (lambda record: {"site": "x"}, "no record of a site"),
        (lambda record: [record], "no record of a site"),
    ],
)
def test_what_is_not_genuine_exits_with_1_and_one_sentence(
    change: Any, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = record_of(DeviceKey())
    check_record(record)
    with pytest.raises(RecordError, match=words):
        check_record(change(record))
    (tmp_path / "r.json").write_text(json.dumps(change(record)), encoding="utf-8")
    assert verified(tmp_path / "r.json") == 1
    assert words in capsys.readouterr().err


def verified(path: Path, *more: str) -> int:
    with pytest.raises(SystemExit) as done:
        main(["site", "verify", str(path), *more])
    return int(done.value.code or 0)


def test_verify_prints_what_a_genuine_record_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key, path = DeviceKey(), tmp_path / "r.json"
    path.write_text(json.dumps(record_of(key)), encoding="utf-8")
    assert verified(path, "--key", key.fingerprint) == 0
    assert "device-1: run run-1, signed by sha256:" in capsys.readouterr().out
    assert verified(path, "--key", DeviceKey().fingerprint) == 1
    assert "is signed by the key" in capsys.readouterr().err
    assert verified(path, "--key", "mine") == 2
    assert is_one_sentence(capsys.readouterr().err.strip().removeprefix("codedfl: "))


@pytest.mark.parametrize(
    ("text", "words"), [(None, "cannot be read"), ("{", "not valid JSON"), ('{"records": []}', "no")]
)
def test_files_without_records_exit_with_1(
    text: str | None, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if text is not None:
        (tmp_path / "r.json").write_text(text, encoding="utf-8")
    assert verified(tmp_path / "r.json") == 1
    assert words in capsys.readouterr().err


def test_the_server_writes_the_verified_records_of_all_sites(tmp_path: Path) -> None:
    with fleet(given()) as sites:
        run = sites.deploy(chosen("sealed-coded"), tmp_path / "run")
    union = read(tmp_path / "run" / UNION)
    told = run.summary["deployment"]
    assert told["records"] == {"file": UNION, "verified": len(sites.sites), "unverified": {}, "missing": []}
    assert [row["site"] for row in union["records"]] == list(sites.sites)
    for row in union["records"]:
        assert row["record"]["run"] == union["run"] == told["run"]
        check_record(row["record"], sites.keys[row["site"]].fingerprint)
    peers = {row["to"] for row in union["records"][0]["record"]["left"]} - {"server"}
    assert peers == set(sites.sites[1:]), "every device has sent parcels to all others"
    assert verified(tmp_path / "run" / UNION) == 0


def test_a_record_that_is_forged_or_missing_is_named(tmp_path: Path) -> None:
    def forging(site: str, tag: int, payload: bytes) -> list[bytes]:
        frame = decode(payload)
        record = frame.fields.get("record")
        if record is None or site == "device-1":
            return [payload]
        changed = {**record, "refused": 99} if site == "device-2" else None
        return [encode(Frame(frame.kind, {**frame.fields, "record": changed}))]

    with fleet(given()) as sites:
        sites.faults.reply = forging
        told = sites.deploy(chosen("conventional"), tmp_path / "run").summary["deployment"]["records"]
    assert told["verified"] == 1
    assert list(told["unverified"]) == ["device-2"]
    assert "altered" in told["unverified"]["device-2"]
    assert told["missing"] == list(sites.sites[2:])


def test_a_resumed_run_keeps_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "_CHECKPOINT_SECONDS", -1.0)
    with fleet(given()) as sites:
        stopped(sites, tmp_path / "run")
        first = read(tmp_path / "run/deployment.json")["run"]
        run = sites.deploy(chosen("conventional"), tmp_path / "run")
    assert run.summary["deployment"]["run"] == first
    (record, *_) = [row["record"] for row in read(tmp_path / "run" / UNION)["records"]]
    assert len(record["sessions"]) == 2
