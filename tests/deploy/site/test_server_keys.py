"""On real sites the server alone has the private key of ``code-based``: what sites are sent, and what they refuse."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codedfl import schemes
from codedfl.cipher.mceliece import private_key
from codedfl.cipher.mceliece.private_key import KeyPair
from codedfl.deploy.protocol.wire import Frame, decode, encode
from codedfl.deploy.server import sessions
from codedfl.errors import CipherError, EngineError, LostDevicesError
from codedfl.runs import Run
from codedfl.runs import directory as runs
from codedfl.scenario import Scenario
from codedfl.schemes import Message, Public, Work
from codedfl.schemes.sharing import code_based
from codedfl.schemes.sharing.code_based import CodeBasedDevice
from contracts.test_engines import RIDGE, SIZES, chosen, given
from deploy.server.test_interrupted_deployment import killed
from fleets import fleet
from haystacks import Drawn, Needles
from tiny import is_one_sentence, problem

POSITIONS = ("<i2", "<i4", "<i8")
WORDS = ("<f4", "<f8")


class Known:
    """The key pairs that a server draws, and the grants that devices are given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pairs: list[KeyPair] = []
        self.grants: dict[int, list[Message]] = {}
        draw, export = code_based.generate_keys, CodeBasedDevice.export

        def drawn(*given: Any, **named: Any) -> KeyPair:
            self.pairs.append(draw(*given, **named))
            return self.pairs[-1]

        def exported(device: CodeBasedDevice, grant: Message, work: Work) -> Message:
            self.grants.setdefault(device._index, []).append(grant)
            return export(device, grant, work)

        monkeypatch.setattr(code_based, "generate_keys", drawn)
        monkeypatch.setattr(CodeBasedDevice, "export", exported)

    def fix(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let keys that come from the operating system be the same in every test run: rounding depends on them."""
        numbers = itertools.count()

        def seed(given: bytes | None = None) -> bytes:
            return bytes([next(numbers)] * 32) if given is None else given

        monkeypatch.setattr(private_key, "fresh_seed", seed)

    def needles(self, secrets: list[bytes]) -> Needles:
        """The private key in every form: H, the erasure set, all supports, and every seed that was drawn."""
        found = Needles()
        for pair in self.pairs:
            private = pair.private
            H = private.code.H
            for dtype in WORDS:
                for row in (*H.toarray(), H.data, private.code.unscrambler(np.float64)):
                    found.add("parity checks", np.asarray(row, dtype).tobytes())
            for dtype in POSITIONS:
                sets = (private.erasures, np.sort(private.erasures))
                supports = [private.support(index).positions for index in range(private.parameters.M)]
                found.add("erasures", *(each.astype(dtype).tobytes() for each in sets))
                found.add("supports", *(each.astype(dtype).tobytes() for each in supports))
                found.add("checks of positions", *(each.astype(dtype).tobytes() for each in (H.indices, H.indptr)))
        for text in secrets:
            found.add_secret("seeds", text)
        return found


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Known:
    return Known(monkeypatch)


def everyone_hands_over(**changes: Any) -> Scenario:
    return chosen("code-based", **{"schemes.code-based.delta": 0.0}, **changes)


def model(run: Run) -> np.ndarray:
    return np.load(run.path / "model.npz")["theta"]


def test_sites_are_sent_the_public_key_and_their_own_support_only(
    tmp_path: Path, known: Known, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every byte to, from and between sites, and in the run directory; each device learns one support."""
    secrets = Drawn(monkeypatch)
    monkeypatch.setattr(runs, "_CHECKPOINT_SECONDS", -1.0)
    with fleet(given()) as sites:
        run = sites.deploy(everyone_hands_over(), tmp_path / "run")
    ((pair, *more), record) = known.pairs, sites.recording
    assert not more, "keys are drawn once"
    both = [payload for _, payload in (*record.sent, *record.received)] + [payload for *_, payload in record.relayed]
    written = [path.read_bytes() for path in run.path.rglob("*") if path.is_file()]
    looked_for = known.needles(secrets.secrets)
    assert set(looked_for.kinds) == {"parity checks", "erasures", "supports", "checks of positions", "seeds"}
    assert looked_for.found_in([*both, *written]) == set()
    prepared = [frame for frame in (decode(payload) for _, payload in record.sent) if frame.kind == "prepare"]
    assert len(prepared) == len(sites.sites)
    assert all(np.array_equal(frame.arrays["generator"], pair.public.G) for frame in prepared)
    assert run.summary["deployment"]["announced_bytes"] == pair.public.G.nbytes
    granted = [grant for grants in known.grants.values() for grant in grants]
    assert all(len(grants) == 1 for grants in known.grants.values()), "a device hands over once"
    supports = [grant for grant in granted if grant]
    assert supports
    for grant in supports:
        assert set(grant) == {"index", "positions"}
        assert np.array_equal(grant["positions"], pair.private.support(int(grant["index"])).positions)


def test_without_encryption_a_support_is_found(tmp_path: Path, known: Known, monkeypatch: pytest.MonkeyPatch) -> None:
    """A control of the search above."""
    monkeypatch.setattr(sessions, "close_grants", lambda site, member, run, request, grants: grants)
    monkeypatch.setattr("codedfl.deploy.site.session.open_grants", lambda site, key, own, run, request, closed: closed)
    with fleet(given()) as sites:
        sites.deploy(everyone_hands_over(), tmp_path / "run")
    assert known.needles([]).found_in(payload for _, payload in sites.recording.sent) == {"supports"}


@pytest.mark.parametrize(("precision", "limit"), [("float64", 1e-12), ("float32", 1e-6)])
def test_fresh_keys_train_the_model_of_virtual_time(
    precision: str, limit: float, tmp_path: Path, known: Known, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to rounding; each deployment asks for another key, and none has that of the seed."""
    known.fix(monkeypatch)
    scenario = everyone_hands_over(**{"task.precision": precision})
    data = problem(SIZES, features=12, outputs=3, ridge=RIDGE, dtype=precision)
    virtual = runs.execute(scenario, tmp_path / "virtual", problem=lambda: data)
    with fleet(data) as sites:
        real = [sites.deploy(scenario, tmp_path / f"real {number}") for number in range(2)]
    for run in real:
        assert run.summary["handovers"] > 0
        assert np.linalg.norm(model(run) - model(virtual)) < limit * np.linalg.norm(model(virtual))
    seeded = schemes.create(scenario, data).keys.public.fingerprint
    assert len({seeded, *(pair.public.fingerprint for pair in known.pairs)}) == 3


def test_a_resumed_run_draws_other_keys(tmp_path: Path, known: Known, monkeypatch: pytest.MonkeyPatch) -> None:
    """No key is stored, so hand-overs are repeated under another; the model differs by rounding."""
    monkeypatch.setattr(runs, "_CHECKPOINT_SECONDS", -1.0)
    known.fix(monkeypatch)
    data = given()
    virtual = runs.execute(everyone_hands_over(), tmp_path / "virtual", problem=lambda: data)
    known.pairs.clear()
    with fleet(data) as sites:
        killed(sites, everyone_hands_over(), tmp_path / "run", after=3)
        run = sites.deploy(everyone_hands_over(), tmp_path / "run")
    first, second = (pair.public.fingerprint for pair in known.pairs)
    assert first != second
    assert np.linalg.norm(model(run) - model(virtual)) < 1e-12 * np.linalg.norm(model(virtual))


# at a site


def at_site(announced: Message | None, scheme: str = "code-based", **changes: Any) -> schemes.Scheme[Any]:
    scenario, data = chosen(scheme, **changes), given()
    public: Public = schemes.create(scenario, data).public
    return schemes.build(scenario, replace(public, announced=announced))


G = np.random.default_rng(3).standard_normal((12, 24))


def test_a_site_has_no_private_key() -> None:
    """It knows the scenario, with the seed of studies, and can still not make a key pair or a server."""
    scheme = at_site({"generator": G})
    for make in (lambda: scheme.keys, scheme.server):  # type: ignore[attr-defined]
        with pytest.raises(CipherError, match="A site has no private key"):
            make()
    assert np.array_equal(scheme.public_key.G, G)  # type: ignore[attr-defined]
    device = scheme.device(0, given().shards[0])
    assert np.array_equal(device.held.words, given().shards[0].gram @ G)  # type: ignore[attr-defined]


def test_errors_of_a_site_come_from_the_operating_system() -> None:
    """Two devices with the same number and grant differ in the positions of the support and nowhere else."""
    scheme, shard = at_site({"generator": G}), given().shards[0]
    grant = {"index": np.array(0, np.int32), "positions": np.array([1, 5, 8, 20], np.int32)}
    first, second = (scheme.device(0, shard).export(grant, Work())["words"] for _ in range(2))
    assert np.flatnonzero((first != second).any(axis=0)).tolist() == grant["positions"].tolist()


@pytest.mark.parametrize(
    ("announced", "says"),
    [
        ({}, "announces nothing, but"),
        ({"generator": G[:, 1:]}, r"generator (float64, 12 x 23), but"),
        ({"generator": G.astype(np.float32)}, r"generator (float32, 12 x 24), but"),
        ({"generator": G, "more": G}, "more (float64, 12 x 24), but"),
        ({"generator": np.where(G[3, 4] == G, np.nan, G)}, "'generator' with numbers that are not finite"),
    ],
)
def test_a_site_refuses_any_other_announcement(announced: Message, says: str) -> None:
    with pytest.raises(EngineError) as error:
        at_site(announced)
    assert says in str(error.value)
    assert is_one_sentence(str(error.value))


def test_a_scheme_that_announces_nothing_is_told_nothing() -> None:
    assert at_site({}, "sealed").announcement() == {}
    with pytest.raises(EngineError, match=r"announces x \(uint8, 3\), but scheme = 'sealed' needs nothing"):
        at_site({"x": np.zeros(3, np.uint8)}, "sealed")


def altered(change: Callable[[Frame], Message], victim: str = "device-3") -> Callable[[str, int, bytes], bytes]:
    def question(site: str, tag: int, payload: bytes) -> bytes:
        frame = decode(payload)
        return encode(replace(frame, arrays=change(frame))) if (site, frame.kind) == (victim, "prepare") else payload

    return question


def test_a_key_that_is_no_key_stops_the_run(tmp_path: Path) -> None:
    with fleet(given()) as sites:
        sites.faults.question = altered(lambda frame: {"generator": frame.arrays["generator"][1:]})
        with pytest.raises(
            EngineError, match=r"device-3: the server announces generator \(float64, 11 x 24\)"
        ) as error:
            sites.deploy(everyone_hands_over(), tmp_path / "run")
    assert is_one_sentence(str(error.value))


def test_sites_with_different_public_keys_exchange_nothing(tmp_path: Path) -> None:
    """A server that gives one site another key could tell its parcels apart; they are bound to the key instead."""
    with fleet(given()) as sites:
        sites.faults.question = altered(lambda frame: {"generator": -frame.arrays["generator"]})
        with pytest.raises((EngineError, LostDevicesError)) as error:
            sites.deploy(everyone_hands_over(), tmp_path / "run")
    assert "device-3" in str(error.value)
    assert "altered" in str(error.value)
