"""Device keys made and pinned at kits; one site added, replaced or revoked while the other kits stay as they are."""

import shutil
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256

pytest.importorskip("nvflare", reason="start-up kits are made by NVIDIA FLARE, of the extra 'flare'")

from codedfl.deploy.flare.kits import Kits, load_kits, write_private
from codedfl.deploy.flare.resources import write_policy
from codedfl.deploy.flare.sites import edit_site, read_site
from codedfl.deploy.protocol.envelopes import DeviceKey
from codedfl.deploy.server.fleet import device_settings, make_fleet
from codedfl.deploy.server.membership import KEY, add, bar, device_key, pin, read_pins, revoke, substitute
from codedfl.errors import CodedflError, EngineError, KeyFileError, ScenarioError, UsageError
from codedfl.scenario import Scenario
from rundirs import SMALL, strict_json
from tiny import is_one_sentence

OWNERS = Scenario.from_toml(SMALL).with_devices(3).with_settings({"data.source": "sites"})
PRINTS = {name: DeviceKey().fingerprint for name in ("anna", "ben", "cara", "dora")}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("organiser") / "kits"
    make_fleet(folder, OWNERS, sites=["anna", "ben", "cara"], own_keys=True, keep_authority=True)
    return folder


@pytest.fixture
def kits(made: Path, tmp_path: Path) -> Kits:
    shutil.copytree(made, tmp_path / "kits")
    return load_kits(tmp_path / "kits")


def contents(folder: Path) -> dict[Path, bytes]:
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def certificate(kit: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate((kit / "startup" / "client.crt").read_bytes())


def shown(one: x509.Certificate) -> str:
    return f"sha256:{one.fingerprint(SHA256()).hex()}"


def refused(kind: type[CodedflError], words: str, folder: Path, *work: object) -> None:
    """The call fails in one sentence with these words, and no file is changed by it."""
    before, (call, *given) = contents(folder), work
    assert callable(call)
    with pytest.raises(kind, match=words) as error:
        call(*given)
    assert is_one_sentence(str(error.value))
    assert contents(folder) == before


def test_the_authority_is_the_organisers_alone_and_kits_hold_no_device_key(kits: Kits) -> None:
    assert list(kits.folder.rglob(KEY)) == []
    assert {path.name for path in kits.authority.iterdir()} == {
        "rootCA.key",
        "rootCA.pem",
        "anna.crt",
        "ben.crt",
        "cara.crt",
    }
    root_key = (kits.authority / "rootCA.key").read_bytes()
    holders = [path for path, text in contents(kits.folder).items() if root_key in text]
    assert holders == [Path("authority/rootCA.key")]


def test_the_authority_is_readable_by_its_owner_only(made: Path) -> None:
    for path in (made / "authority", *(made / "authority").iterdir()):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_a_device_makes_its_key_once(kits: Kits) -> None:
    key, new = device_key(kits.device("ben"))
    again, later = device_key(kits.device("ben"))
    assert (new, later, key.fingerprint) == (True, False, again.fingerprint)
    assert stat.S_IMODE((kits.device("ben") / KEY).stat().st_mode) == 0o600
    refused(UsageError, "is not the start-up kit of a device", kits.folder, device_key, kits.server)
    write_private(kits.device("cara") / KEY, b"none")
    refused(KeyFileError, "holds no Ed25519 key", kits.folder, device_key, kits.device("cara"))


def test_prints_are_entered_and_every_other_line_stays(kits: Kits) -> None:
    """Owners write into their files; a table may have any place."""
    kit = kits.device("ben")
    path = kit / "site.toml"
    path.write_text("# mine\nname = 'ben'\n[peers]\n# by telephone\n\n[data]\nsource = 'x.csv' # here\n")
    assert pin(kit, {"anna": PRINTS["anna"], "cara": PRINTS["cara"]}) == ["anna", "cara"]
    entered = [f'{name} = "{PRINTS[name]}"' for name in ("anna", "cara")]
    expected = [
        "# mine",
        "name = 'ben'",
        "[peers]",
        "# by telephone",
        *entered,
        "",
        "[data]",
        "source = 'x.csv' # here",
    ]
    assert path.read_text().splitlines() == expected
    assert pin(kit, {"anna": PRINTS["anna"]}) == []
    refused(UsageError, f"pinned to {PRINTS['anna']}, not", kit, pin, kit, {"anna": PRINTS["dora"]})
    assert pin(kit, {"anna": PRINTS["dora"]}, change=True) == ["anna"]
    assert read_site(kit)["peers"] == {"anna": PRINTS["dora"], "cara": PRINTS["cara"]}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_server_pins_all_and_a_device_all_but_itself(kits: Kits) -> None:
    own = device_key(kits.device("anna"))[0].fingerprint
    prints = PRINTS | {"anna": own}
    del prints["dora"]
    assert pin(kits.server, prints) == ["anna", "ben", "cara"]
    assert pin(kits.device("anna"), prints) == ["ben", "cara"]
    assert read_pins(read_site(kits.server)) == (prints, ())
    kit = kits.device("anna")
    refused(UsageError, "anna is this device", kit, pin, kit, {"anna": PRINTS["ben"]})
    refused(ScenarioError, "must be a fingerprint", kit, pin, kit, {"dora": "sha256:00"})
    refused(UsageError, "cannot be the name", kit, pin, kit, {"Dora!": PRINTS["dora"]})
    refused(UsageError, "is not a start-up kit", kits.folder, pin, kits.folder, {"ben": PRINTS["ben"]})


def test_a_list_of_several_lines_is_replaced_and_comments_stay(tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text('# mine\nname = "a"\nrevoked = [\n  "x",  # gone\n]\n# last\n[data]\n')
    edit_site(tmp_path, "", {"revoked": ["x", "y"]})
    text = (tmp_path / "site.toml").read_text()
    assert text.splitlines() == ["# mine", 'name = "a"', "# last", 'revoked = ["x", "y"]', "", "[data]"]


@pytest.mark.parametrize(
    "text", ['name = "a"\nrevoked = [\n  "]",\n"x"]\n', 'peers.b = "x"\nname = "a"\n', 'name = "a"\npeers = {}\n']
)
def test_a_file_that_cannot_be_edited_line_by_line_is_left_as_it_is(text: str, tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text(text)
    table, values = ("", {"revoked": ["x", "y"]}) if "revoked" in text else ("peers", {"c": "y"})
    refused(EngineError, "do it by hand", tmp_path, edit_site, tmp_path, table, values)


def test_one_site_more_leaves_the_kits_of_the_others_as_they_are(kits: Kits) -> None:
    before = contents(kits.folder)
    grown = add(kits.folder, "dora", device_settings(OWNERS, 4, 4))
    after = contents(kits.folder)
    assert grown == load_kits(kits.folder)
    assert grown.sites == ("anna", "ben", "cara", "dora")
    changed = {path for path in after if after[path] != before.get(path)}
    assert {path.parts[0] for path in changed} == {"dora", "kits.json", "authority"}
    assert changed - {path for path in after if path.parts[0] == "dora"} == {
        Path("kits.json"),
        Path("authority/dora.crt"),
    }
    root = x509.load_pem_x509_certificate((kits.device("anna") / "startup" / "rootCA.pem").read_bytes())
    certificate(kits.device("dora")).verify_directly_issued_by(root)
    assert (kits.device("dora") / "startup" / "rootCA.pem").read_bytes() == before[Path("anna/startup/rootCA.pem")]
    assert read_site(kits.device("dora"))["data"] == {"source": "data.csv"}
    for path in kits.device("dora").rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    refused(UsageError, "has a site dora", kits.folder, add, kits.folder, "dora", {})
    refused(UsageError, "cannot be the name", kits.folder, add, kits.folder, "authority", {})


def test_another_kit_for_a_lost_one_and_the_old_one_is_revoked(kits: Kits) -> None:
    pin(kits.server, {name: PRINTS[name] for name in kits.sites})
    old = certificate(kits.device("ben"))
    refused(UsageError, "move or delete this kit first", kits.folder, substitute, kits.folder, "ben", {})
    shutil.rmtree(kits.device("ben"))
    before = contents(kits.folder)
    found, barred = substitute(kits.folder, "ben", device_settings(OWNERS, 2, 3))
    assert found == kits
    assert barred == [shown(old), PRINTS["ben"]]
    assert read_pins(read_site(kits.server))[1] == tuple(barred)
    new = certificate(kits.device("ben"))
    assert (shown(new) != shown(old), new.subject == old.subject) == (True, True)
    after = contents(kits.folder)
    changed = {path for path in after if after[path] != before.get(path) and path.parts[0] != "ben"}
    assert changed == {Path("server/site.toml"), Path("authority/ben.crt")}
    refused(UsageError, "has no site dora", kits.folder, substitute, kits.folder, "dora", {})


def test_one_site_less(kits: Kits) -> None:
    left, barred = revoke(kits.folder, "cara")
    assert left == load_kits(kits.folder)
    assert left.sites == ("anna", "ben")
    assert barred == ["cara", shown(certificate(kits.device("cara")))]
    assert read_pins(read_site(kits.server)) == (None, tuple(barred))
    write_policy(kits.server)  # as every start does
    assert strict_json((kits.server / "disabled_clients.json").read_text()) == {"disabled_clients": ["cara"]}
    refused(UsageError, "cara is revoked", kits.folder, add, kits.folder, "cara", {})
    refused(UsageError, "has no site cara", kits.folder, revoke, kits.folder, "cara")
    revoke(kits.folder, "ben")
    assert read_pins(read_site(kits.server))[1][: len(barred)] == tuple(barred), "what was revoked stays so"
    refused(UsageError, "anna is the last site", kits.folder, revoke, kits.folder, "anna")


def test_a_server_elsewhere_is_told_what_to_revoke(kits: Kits, tmp_path: Path) -> None:
    server = kits.server.rename(tmp_path / "server")
    _, barred = revoke(kits.folder, "cara")
    bar(server, barred)
    bar(server, barred)
    assert read_pins(read_site(server))[1] == tuple(barred)
    refused(ScenarioError, "must be a fingerprint", server, bar, server, ["sha256:1"])
    refused(UsageError, "alone revokes", kits.folder, bar, kits.device("anna"), barred)


def test_without_the_authority_no_site_is_added(kits: Kits) -> None:
    shutil.rmtree(kits.authority)
    refused(UsageError, "make new kits for all sites", kits.folder, add, kits.folder, "dora", {})
    assert revoke(kits.folder, "cara")[1] == ["cara", shown(certificate(kits.device("cara")))]


@pytest.mark.parametrize(
    "site",
    [{"fingerprints": {"a": "md5:0"}}, {"fingerprints": ["a"]}, {"revoked": "cara"}, {"revoked": [1]}],
    ids=str,
)
def test_wrong_settings_of_a_server_are_refused(site: dict[str, object]) -> None:
    with pytest.raises(ScenarioError, match="must be a") as error:
        read_pins(site)
    assert is_one_sentence(str(error.value))
