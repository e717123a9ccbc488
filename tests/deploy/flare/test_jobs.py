"""Jobs: configuration only; watched, told apart, and submitted again a bounded number of times."""

import json
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from codedfl.deploy.flare import jobs
from codedfl.deploy.flare.cells import LONGEST_START
from codedfl.deploy.flare.jobs import Admin, Job, run_job, write_job
from codedfl.deploy.flare.kits import Kits
from codedfl.errors import EngineError, LostDevicesError, TrainingError, UsageError

KITS = Kits(Path("kits"), "localhost", 8002, ("device-1", "device-2"))
JOB = Job("test", "codedfl.testing.echo:rounds", KITS.sites, {"rounds": 3, "path": "{x}"})


def test_a_job_is_configuration_only(tmp_path: Path) -> None:
    folder = write_job(tmp_path, JOB)
    read = {str(path.relative_to(folder)): json.loads(path.read_text()) for path in folder.rglob("*.*")}
    assert set(read) == {
        "meta.json",
        "for_server/config/config_fed_server.json",
        "for_server/config/arguments.json",
        "for_devices/config/config_fed_client.json",
    }
    assert read["meta.json"]["deploy_map"] == {"for_server": ["server"], "for_devices": ["device-1", "device-2"]}
    assert read["for_server/config/arguments.json"] == {"rounds": 3, "path": "{x}", "sites": ["device-1", "device-2"]}
    (workflow,) = read["for_server/config/config_fed_server.json"]["workflows"]
    assert workflow["path"] == "codedfl.deploy.flare.controller.CarrierController"
    assert workflow["args"] == {"entry": JOB.entry}
    (executor,) = read["for_devices/config/config_fed_client.json"]["executors"]
    assert executor["executor"] == {"path": "codedfl.deploy.flare.executor.HostExecutor", "args": {}}


def test_devices_wait_for_the_server_of_a_job_as_long_as_for_their_cells(tmp_path: Path) -> None:
    """Under the name by which FLARE reads it: one that gave up after its 60 s would end the job at all sites."""
    constants = pytest.importorskip("nvflare.apis.fl_constant")
    settings = json.loads((write_job(tmp_path, JOB) / "for_devices/config/config_fed_client.json").read_text())
    assert settings[constants.ConfigVarName.MAX_RUNNER_SYNC_TIMEOUT] == LONGEST_START


@pytest.mark.parametrize("entry", ["os:system", "codedfl.security.audit", ""])
def test_a_job_names_a_function_of_this_package(tmp_path: Path, entry: str) -> None:
    with pytest.raises(UsageError, match="no entry point"):
        write_job(tmp_path, Job("test", entry, KITS.sites))


def test_arguments_that_are_no_data(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_job(tmp_path, Job("test", JOB.entry, KITS.sites, {"rate": float("nan")}))


class Server:
    """FLARE's session in memory; ``fates`` says how each job ends, and with which outcome."""

    def __init__(self, *fates: tuple[str, dict[str, Any] | None]) -> None:
        self.fates = list(fates)
        self.started = 1.0
        self.submitted: list[dict[str, Any]] = []
        self.tokens: list[str] = []
        self.aborted: list[str] = []
        self.present = ["device-1", "device-2"]
        self.answers: Iterator[list[str]] = iter(())
        self.trouble: Iterator[Exception] = iter(())
        self.late = 2
        """How often FLARE has said that a job did not run before it says why."""
        self.api = SimpleNamespace(close=lambda: None)

    def __call__(self, kits: Kits) -> "Server":
        if error := next(self.trouble, None):
            raise error
        return self

    def get_system_info(self) -> Any:
        clients = [SimpleNamespace(name=name) for name in self.present]
        return SimpleNamespace(client_info=clients, server_info=SimpleNamespace(start_time=self.started))

    def get_client_job_status(self) -> list[dict[str, str]]:
        statuses = next(self.answers, [])
        if "LATE" in statuses:
            raise ConnectionError("no answer in time")
        return [{"client_name": name, "status": status} for name, status in zip(self.present, statuses, strict=False)]

    def submit_job(self, folder: str, submit_token: str) -> str:
        self.submitted.append(json.loads((Path(folder) / "for_server/config/arguments.json").read_text()))
        self.tokens.append(submit_token)
        return str(len(self.submitted) - 1)

    def get_job_meta(self, job: str) -> dict[str, Any]:
        status = self.fates[int(job)][0]
        if status == "SERVER DIES":
            self.started += 1
            status = "RUNNING"
        if status == "FINISHED:FAILED_TO_RUN" and self.late > 0:
            self.late -= 1
            return {"status": status}
        return {"status": status, "job_deploy_detail": ["server: OK", "device-2: BYOC not permitted"]}

    def download_job_result(self, job: str, folder: str) -> str:
        outcome = self.fates[int(job)][1]
        if outcome is not None:
            (Path(folder) / "workspace").mkdir()
            (Path(folder) / "workspace" / "outcome.json").write_text(json.dumps(outcome))
        return folder

    def abort_job(self, job: str) -> None:
        self.aborted.append(job)


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "POLL", 0.0)


def run(server: Server, *, tries: int = 3, revive: Callable[[], None] = lambda: None) -> Any:
    pytest.importorskip("nvflare", reason="sessions are those of NVIDIA FLARE, of the extra 'flare'")
    with Admin(KITS, connect=server, revive=revive, patience=0.0) as admin:
        return run_job(admin, JOB, tries=tries, wait=0.0)


DONE = ("FINISHED:COMPLETED", {"result": {"epochs": 3}})
KILLED = ("FINISHED:EXECUTION_EXCEPTION", None)


def failed(kind: str | None, why: str = "why") -> tuple[str, dict[str, Any] | None]:
    return "FINISHED:EXECUTION_EXCEPTION", {"error": why, "kind": kind}


def test_what_the_entry_point_returned_comes_back() -> None:
    server = Server(DONE)
    assert run(server) == {"epochs": 3}
    assert server.submitted == [{"rounds": 3, "path": "{x}", "sites": [*KITS.sites]}]


def test_a_result_counts_even_if_flare_stumbled_afterwards() -> None:
    assert run(Server(("FINISHED:ABNORMAL", {"result": 7}))) == 7


@pytest.mark.parametrize(
    "fate", [KILLED, ("SERVER DIES", None), failed("EngineError"), failed(None), failed("LostDevicesError")]
)
def test_a_lost_job_is_submitted_again(fate: tuple[str, dict[str, Any] | None]) -> None:
    server = Server(fate, DONE)
    assert run(server) == {"epochs": 3}
    assert (len(server.submitted), len(set(server.tokens))) == (2, 2)
    assert server.aborted == (["0"] if fate[0] == "SERVER DIES" else [])


def test_but_not_for_ever() -> None:
    server = Server(KILLED, KILLED, KILLED, DONE)
    with pytest.raises(EngineError, match=r"failed 3 times, the last time because device-2: BYOC not permitted"):
        run(server)
    assert len(server.submitted) == 3


def test_why_a_job_did_not_run_is_awaited_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(("FINISHED:FAILED_TO_RUN", None))
    with Admin(KITS, connect=server) as admin:
        assert admin.refusals("0") == ["device-2: BYOC not permitted"]
        monkeypatch.setattr(jobs, "DETAILS", 0.0)
        server.late = 1_000_000
        assert admin.refusals("0") == []


@pytest.mark.parametrize(("kind", "raised"), [("LostDevicesError", LostDevicesError), (None, EngineError)])
def test_the_same_complaint_twice_is_enough(kind: str | None, raised: type[Exception]) -> None:
    server = Server(failed(kind), failed(kind), DONE)
    with pytest.raises(raised, match="why"):
        run(server)
    assert len(server.submitted) == 2


def test_the_last_try_is_the_last_word() -> None:
    with pytest.raises(LostDevicesError, match=r"^why$"):
        run(Server(failed("LostDevicesError"), DONE), tries=1)


def test_other_errors_are_raised_as_they_are() -> None:
    server = Server(failed("TrainingError", "it diverges"), DONE)
    with pytest.raises(TrainingError, match="it diverges"):
        run(server)
    assert len(server.submitted) == 1


def test_a_job_that_somebody_ended_is_not_begun_again() -> None:
    server = Server(("FINISHED:ABORTED", None), DONE)
    with pytest.raises(EngineError, match="job was aborted"):
        run(server)
    assert len(server.submitted) == 1


def test_it_goes_on_with_those_who_are_there() -> None:
    server = Server(DONE)
    server.present = ["device-2", "stranger"]
    assert run(server) == {"epochs": 3}
    server.present = ["stranger"]
    with pytest.raises(EngineError, match="none of device-1, device-2 is connected"):
        run(server)


def test_nothing_is_submitted_before_all_who_are_listed_answer() -> None:
    """A device that has died and comes back is listed all the while; FLARE would leave it out of the job."""
    server, asked = Server(DONE), []

    def answers() -> Iterator[list[str]]:
        for statuses in (["no_jobs", "no_reply"], ["LATE"], ["no_jobs", "no_jobs"], ["no_reply", "no_reply"]):
            asked.append(len(server.submitted))
            yield statuses

    server.answers = answers()
    pytest.importorskip("nvflare", reason="sessions are those of NVIDIA FLARE, of the extra 'flare'")
    with Admin(KITS, connect=server) as admin:
        assert run_job(admin, JOB, wait=60.0) == {"epochs": 3}
    assert asked == [0, 0, 0]


def test_who_never_answers_is_not_awaited_for_ever() -> None:
    server = Server(DONE)
    server.answers = iter([["no_jobs", "no_reply"]] * 5)
    assert run(server) == {"epochs": 3}


def test_a_lost_session_is_made_again_and_the_dead_are_revived() -> None:
    spec = pytest.importorskip("nvflare.fuel.flare_api.api_spec", reason="sessions are those of NVIDIA FLARE")
    server, revived = Server(DONE), []
    lost = ("Communication Error - please try later", "Can't fetch command list from server.")
    server.trouble = iter([ConnectionError("gone"), *map(spec.InternalError, lost)])
    with Admin(KITS, connect=server, revive=lambda: revived.append(1), patience=60.0) as admin:
        assert admin.sites() == set(KITS.sites)
    assert revived == [1, 1, 1]


@pytest.mark.parametrize("what", ["connection", "answer"])
@pytest.mark.parametrize("patience", [60.0, 0.0])
def test_what_flare_awaits_for_ever_is_asked_for_again(
    what: str, patience: float, capsys: pytest.CaptureFixture[str]
) -> None:
    """Once more at least, in another session; output is shown again."""
    pytest.importorskip("nvflare", reason="sessions are those of NVIDIA FLARE, of the extra 'flare'")
    server, over, stuck = Server(DONE), threading.Event(), iter([what])

    class Stuck(Server):
        def get_system_info(self) -> Any:
            over.wait()

    def connect(kits: Kits) -> Any:
        wait = next(stuck, None)
        if wait == "connection":
            over.wait()
        return server if wait is None else Stuck()

    try:
        with Admin(KITS, connect=connect, patience=patience, limits=(0.5, 0.5)) as admin:
            assert admin.sites() == set(KITS.sites)
            sys.stdout.write("shown\n")
    finally:
        over.set()
    assert capsys.readouterr().out == "shown\n"


def test_a_connection_that_is_made_while_a_session_closes_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """FLARE closes all connections, then waits for the thread that is about to make one, which then reads for ever."""
    pytest.importorskip("nvflare", reason="sessions are those of NVIDIA FLARE, of the extra 'flare'")
    monkeypatch.setattr(jobs, "CLOSING", 0.05)
    server, closed, ended = Server(DONE), threading.Event(), threading.Event()
    driver = SimpleNamespace(close_all=closed.set)
    manager = SimpleNamespace(connectors={"CH1": SimpleNamespace(driver=driver)})
    communicator = SimpleNamespace(conn_manager=manager)
    cell = SimpleNamespace(core_cell=SimpleNamespace(communicator=communicator))
    server.api = SimpleNamespace(close=lambda: closed.wait() and ended.set(), cell=cell)
    with Admin(KITS, connect=server) as admin:
        admin.sites()
    assert ended.wait(60), "the call that closes the session ends, too"


def test_a_server_that_is_not_there_is_named() -> None:
    server = Server()
    server.trouble = iter([ConnectionError("gone")] * 3)
    with pytest.raises(EngineError, match="localhost:8002 does not answer"):
        run(server)


def test_a_refusal_is_no_loss() -> None:
    server = Server()
    server.trouble = iter([RuntimeError("not authorised")])
    with pytest.raises(EngineError, match="not authorised"):
        run(server)
