"""A site under differential privacy: one entry a release, a budget that holds, and noise that is drawn once a run."""

import json
import math
import multiprocessing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent
from dp_accounting.pld import PLDAccountant

from codedfl.deploy.protocol.envelopes import DeviceKey, Member, SessionKey
from codedfl.deploy.protocol.terms import terms_of
from codedfl.deploy.protocol.wire import Frame
from codedfl.deploy.site.configuration import read_settings
from codedfl.deploy.site.host import DeviceHost
from codedfl.deploy.site.privacy import KEY, LEDGER, SEED, LedgerEntry, PrivacyLedger, PrivacyTotal, SitePrivacy
from codedfl.deploy.site.session import LocalData
from codedfl.errors import RefusalError, ScenarioError
from codedfl.privacy.accounting import mu_of
from codedfl.schemes import Work
from codedfl.task import Shard
from deploy.site.test_host import GIVEN, Asker, host, reason
from rundirs import strict_json

EPSILON = 2.0
OWN, OTHER = DeviceKey(), DeviceKey()
KEYED: dict[str, Any] = {"key": OWN, "pins": {"device-2": OTHER.fingerprint}}
"""What a site must have to add noise."""


class PrivateAsker(Asker):
    """Asks for runs with noise."""

    def __init__(self, host: DeviceHost, session: str = "s1", run: str = "run-1", **changes: Any) -> None:
        super().__init__(host, "one-shot", session)
        self.scenario = self.scenario.with_settings({"privacy.epsilon": EPSILON, **changes})
        self.run = run

    @property
    def described(self) -> dict[str, Any]:
        return super().described | {"run": self.run}

    def prepare(self, told: Frame, **changes: Any) -> Frame:
        other = Member.of(OTHER, SessionKey(), self.session, "device-2").to_hex()
        members = {"device-1": told.fields["member"], "device-2": other} if told.fields["member"] else {}
        return super().prepare(told, **({"members": members} | changes))

    @property
    def noisy(self) -> Any:
        """What the device adds to the sum, before it masks it."""
        run = self.host._run
        assert run is not None
        inner = run.device._inner  # type: ignore[attr-defined]
        return np.concatenate([each.ravel() for each in inner.reply(1, {}, Work()).values()])

    def first(self) -> Frame:
        """The first round of the first sum, whose answer holds keys."""
        asked = {"asked": np.arange(2)}
        return self.ask("reply", asked, epoch=1, question=0, standing=False, offline=False)


def kept(folder: Path, **privacy: Any) -> DeviceHost:
    return host(folder=folder, privacy=SitePrivacy(**privacy), **KEYED)


def ledger(folder: Path) -> list[dict[str, Any]]:
    if not (folder / LEDGER).exists():
        return []
    found: list[dict[str, Any]] = strict_json((folder / LEDGER).read_text(encoding="utf-8"))["releases"]
    return found


def released(asker: PrivateAsker) -> Any:
    """Begin a session, let something leave, and return the sums."""
    asker.begin()
    assert asker.first().kind == "answer"
    return asker.noisy


def test_a_release_is_entered_before_anything_leaves(tmp_path: Path) -> None:
    asker = PrivateAsker(kept(tmp_path))
    asker.begin()
    assert ledger(tmp_path) == [], "nothing has left the site"
    assert not list(tmp_path.rglob(SEED))
    assert asker.first().kind == "answer"
    (entry,) = ledger(tmp_path)
    assert (entry["run"], entry["scenario"], entry["ledger"]) == ("run-1", asker.scenario.name, "default")
    assert (entry["unit"], entry["delta"], entry["releases"]) == ("record", 1e-5, 1)
    assert 0.99 * EPSILON < entry["epsilon"] <= EPSILON
    assert entry["mu"] == pytest.approx(mu_of(entry["epsilon"], 1e-5), rel=1e-9)
    assert entry["terms"] == terms_of(asker.scenario).digest
    for name in (LEDGER, KEY, f"records/run-1/{SEED}"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600, name


@pytest.mark.parametrize("known", [{}, {"key": OWN, "pins": None}], ids=["no key", "no pins"])
def test_a_site_adds_noise_beside_devices_that_it_knows_only(tmp_path: Path, known: dict[str, Any]) -> None:
    """A server that invents the others would have its data under its own share of the noise."""
    asker = PrivateAsker(host(folder=tmp_path, privacy=SitePrivacy(), **known))
    assert "pin the keys of the others" in reason(asker.prepare(asker.describe()))
    assert ledger(tmp_path) == []


def test_a_session_that_resumes_a_run_releases_the_same_sums_and_is_charged_once(tmp_path: Path) -> None:
    first = released(PrivateAsker(kept(tmp_path)))
    again = released(PrivateAsker(kept(tmp_path), "s2"))  # another process
    assert np.array_equal(again, first)
    assert len(ledger(tmp_path)) == 1


CHANGES: list[dict[str, Any]] = [
    {"run": "run-2"},
    {"privacy.epsilon": 1.0},
    {"privacy.delta": 1e-6},
    {"privacy.clip_features": 0.5},
    {"training.epochs": 3},
    {"features.seed": 5},
]


@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_another_run_or_other_terms_are_another_release(changes: dict[str, Any], tmp_path: Path) -> None:
    first = released(PrivateAsker(kept(tmp_path)))
    other = released(PrivateAsker(kept(tmp_path), "s2", **changes))
    assert not np.any(first == other)
    assert len({entry["release"] for entry in ledger(tmp_path)}) == 2


def test_other_numbers_of_rows_are_another_release(tmp_path: Path) -> None:
    """The server says how many rows others have: what it says must not take this site's noise off."""
    first = released(PrivateAsker(kept(tmp_path)))
    asker = PrivateAsker(kept(tmp_path), "s2")
    assert asker.prepare(asker.describe(), samples=[4, 6]).kind == "answer"
    assert asker.first().kind == "answer"
    assert not np.any(asker.noisy == first)
    assert len(ledger(tmp_path)) == 2


def test_other_data_are_another_release_under_other_noise(tmp_path: Path) -> None:
    first = released(PrivateAsker(kept(tmp_path)))
    shard = Shard(GIVEN.shards[0].x * 0.5, GIVEN.shards[0].y)
    other = host(**KEYED, folder=tmp_path, load=lambda wanted: LocalData(shard, "classification", ("a", "b")))
    assert not np.any(released(PrivateAsker(other, "s2")) == first)
    one, two = ledger(tmp_path)
    assert one["data"] != two["data"]


def test_sums_that_are_rounded_otherwise_do_not_get_the_same_noise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With other threads or libraries a sum of products may differ in its last bits."""
    first = released(PrivateAsker(kept(tmp_path)))
    path = tmp_path / f"records/run-1/{SEED}"
    table = json.loads(path.read_text())
    path.write_text(json.dumps(table | {"sums": dict.fromkeys(table["sums"], "hmac-sha256:other")}))
    asker = PrivateAsker(kept(tmp_path), "s2")
    told = asker.prepare(asker.describe())
    assert told.kind == "error"
    assert "not those of before to the last bit" in told.fields["reason"]
    assert not np.any(released(PrivateAsker(kept(tmp_path), "s3")) == first)
    assert len(ledger(tmp_path)) == 2


def test_fresh_noise_of_another_site_is_another_release(tmp_path: Path) -> None:
    """Beside noise of others that is drawn anew, the same noise of this site would show in the mean of the sums."""
    first = released(PrivateAsker(kept(tmp_path)))
    asker = PrivateAsker(kept(tmp_path), "s2")
    told = asker.describe()
    wrong = asker.prepare(told, marks=["00" * 16, ""])
    assert "another mark of its noise than its own" in wrong.fields["reason"]
    asker = PrivateAsker(kept(tmp_path), "s3")
    told = asker.describe()
    assert asker.prepare(told, marks=[told.fields["mark"], "11" * 16]).kind == "answer"
    assert asker.first().kind == "answer"
    assert not np.any(asker.noisy == first)
    assert len(ledger(tmp_path)) == 2


def test_a_run_that_has_ended_keeps_no_seed(tmp_path: Path) -> None:
    asker = PrivateAsker(kept(tmp_path))
    first = released(asker)
    seed = tmp_path / f"records/run-1/{SEED}"
    secret = json.loads(seed.read_text())["seed"]
    record = asker.ask("forget", stage=None).fields["record"]
    assert not seed.exists()
    assert record["privacy"]["statement"] == ledger(tmp_path)[0]["statement"]
    assert record["privacy"]["total"]["releases"] == 1
    texts = [path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(secret in text for text in texts)
    assert not np.any(released(PrivateAsker(kept(tmp_path), "s2")) == first), "its noise cannot be drawn again"
    assert len(ledger(tmp_path)) == 2


def test_a_site_that_stops_keeps_the_seed(tmp_path: Path) -> None:
    asker = PrivateAsker(kept(tmp_path))
    first = released(asker)
    asker.host.close()
    assert np.array_equal(released(PrivateAsker(kept(tmp_path), "s2")), first)


def test_without_a_folder_the_host_remembers() -> None:
    same = host(**KEYED)
    first = released(PrivateAsker(same))
    assert np.array_equal(released(PrivateAsker(same, "s2")), first)
    assert same._ledger.total().releases == 1


def test_runs_add_up_until_the_budget_is_used_and_nothing_changes_beyond(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Two runs of epsilon 2 amount to 3.0: by dp-accounting, which composes distributions."""
    for number in (1, 2):
        released(PrivateAsker(kept(tmp_path, budget_epsilon=3.1), f"s{number}", f"run-{number}"))
    total = PrivacyLedger("x", tmp_path, SitePrivacy(budget_epsilon=3.1)).total()
    accountant = PLDAccountant(value_discretization_interval=1e-4)
    accountant.compose(GaussianDpEvent(1 / ledger(tmp_path)[0]["mu"]), 2)
    assert total.epsilon == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-3)
    before = (tmp_path / LEDGER).read_bytes()
    asker = PrivateAsker(kept(tmp_path, budget_epsilon=3.1), "s3", "run-3")
    sentence = reason(asker.prepare(asker.describe()))
    used, left = math.ceil(100 * total.epsilon) / 100, math.floor(1000 * (total.left or 0)) / 1000
    assert f"has used epsilon {used:.2f} of its budget of 3.1 (delta 1e-05)" in sentence
    assert f"asks for 2.00 (delta 1e-05), where {left:.3g} is left" in sentence
    assert sentence in caplog.text
    assert "not prepared" in reason(asker.first())
    assert (tmp_path / LEDGER).read_bytes() == before
    assert not (tmp_path / f"records/run-3/{SEED}").exists()
    again = released(PrivateAsker(kept(tmp_path, budget_epsilon=3.1), "s4", "run-2"))
    assert again.size, "a run that was charged may be resumed"
    released(PrivateAsker(kept(tmp_path, budget_epsilon=3.1, ledger="other rows"), "s5", "run-5"))
    assert [entry["ledger"] for entry in ledger(tmp_path)] == ["default", "default", "other rows"]


def entry(mu: float = 0.5, **changes: Any) -> LedgerEntry:
    texts = dict.fromkeys(("release", "run", "at", "scenario", "data", "terms", "statement"), "x")
    numbers = {"epsilon": 1.0, "delta": 1e-5, "mu": mu, "releases": 1}
    return LedgerEntry(**(texts | {"ledger": "default", "unit": "record"} | numbers | changes))


def test_what_is_left_fills_the_budget() -> None:
    allowed = SitePrivacy(budget_epsilon=4.0, budget_delta=1e-6)
    before = [entry(0.3), entry(0.4, unit="device")]
    total = PrivacyTotal.of(before, allowed)
    assert (total.mu, total.unit, total.releases) == (pytest.approx(0.5), "record", 2)
    last = entry(mu_of(total.left or 0.0, 1e-6))
    assert PrivacyTotal.of([*before, last], allowed).epsilon == pytest.approx(4.0, rel=1e-9)
    assert PrivacyTotal.of([entry(9.0)], allowed).left == 0
    assert PrivacyTotal.of([entry(unit="device")], allowed).unit == "device"
    assert "0 releases in ledger 'default': together (0, 1e-06)" in PrivacyTotal.of([], allowed).words


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "{}", '{"schema": 2, "releases": []}', '{"schema": 1, "releases": [{}]}', "\xff"),
        json.dumps({"schema": 1, "releases": [vars(entry()) | {"mu": 0.0}]}),
        json.dumps({"schema": 1, "releases": [vars(entry()) | {"mu": "1"}]}),
        json.dumps({"schema": 1, "releases": [vars(entry()) | {"unit": "x"}]}),
    ],
)
def test_a_damaged_ledger_refuses_and_stays_as_it_is(text: str, tmp_path: Path) -> None:
    (tmp_path / LEDGER).write_bytes(text.encode("latin-1"))
    asker = PrivateAsker(kept(tmp_path))
    assert "privacy cannot be read" in reason(asker.prepare(asker.describe()))
    assert (tmp_path / LEDGER).read_bytes() == text.encode("latin-1")
    plain = Asker(kept(tmp_path), session="s2")
    plain.begin()


def test_a_ledger_that_cannot_be_written_lets_nothing_leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from codedfl.deploy.site import privacy

    asker = PrivateAsker(kept(tmp_path))
    asker.begin()

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(privacy, "write_json", full)
    assert "(No space left on device), so nothing leaves" in reason(asker.first())
    monkeypatch.undo()
    fields = {"epoch": 1, "question": 1, "standing": False, "offline": False}
    assert asker.ask("reply", {"asked": np.arange(2)}, **fields).kind == "answer"
    assert len(ledger(tmp_path)) == 1


def test_a_damaged_key_refuses_and_a_damaged_seed_is_another_release(tmp_path: Path) -> None:
    first = released(PrivateAsker(kept(tmp_path)))
    (tmp_path / f"records/run-1/{SEED}").write_text('{"seed": "00", "sums": {}}')
    assert not np.any(released(PrivateAsker(kept(tmp_path), "s2")) == first)
    assert len(ledger(tmp_path)) == 2
    (tmp_path / KEY).write_bytes(b"short")
    asker = PrivateAsker(kept(tmp_path), "s3")
    assert "privacy.key of device-1 is damaged" in reason(asker.describe())


@pytest.mark.parametrize("privacy", [{"only_private": True}, {"budget_epsilon": 5.0}], ids=str)
def test_runs_without_noise_are_refused_where_the_owner_wants_noise(privacy: dict[str, Any], tmp_path: Path) -> None:
    assert "runs with noise only" in reason(Asker(kept(tmp_path, **privacy)).describe())
    assert not (tmp_path / "records").exists()
    PrivateAsker(kept(tmp_path, **privacy), "s2").begin()


@pytest.mark.parametrize(
    "changes",
    [
        {"data.held_out": 0.2},
        {"features.intercept": True},
        {"task.ridge": [0.1, 0.2], "training.solver": "closed-form"},
    ],
    ids=str,
)
def test_what_would_be_released_beside_the_noise_is_refused(changes: dict[str, Any]) -> None:
    assert "privacy.epsilon does not go with" in reason(PrivateAsker(host(), **changes).describe())


@pytest.mark.real
def test_processes_do_not_spend_the_same_budget_twice(tmp_path: Path) -> None:
    """Epsilon 1 allows a mu of 0.268; eight of 0.09 amount to 0.2546, nine to 0.27."""
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        done = pool.starmap(_charge, [(tmp_path, number) for number in range(24)])
    assert sum(done) == len(ledger(tmp_path)) == 8


def _charge(folder: Path, number: int) -> bool:
    try:
        PrivacyLedger("site", folder, SitePrivacy(budget_epsilon=1.0)).charge(entry(0.09, release=f"{number}"))
    except RefusalError:
        return False
    return True


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"budget_epsilon": 0}, "privacy.budget_epsilon = 0"),
        ({"budget_epsilon": "much"}, "privacy.budget_epsilon = 'much'"),
        ({"budget_delta": 1.0}, "privacy.budget_delta = 1"),
        ({"only_private": 1}, "privacy.only_private = 1"),
        ({"budget": 1.0}, "unknown key 'privacy.budget'"),
    ],
)
def test_bad_settings_of_an_owner_are_refused(table: dict[str, Any], words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        read_settings({"name": "anna", "data": {"source": "mine.csv"}, "privacy": table})
