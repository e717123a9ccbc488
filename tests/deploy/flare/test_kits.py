"""Start-up kits: what is in them, who can read them, and what their sites allow."""

import json
import socket
import stat
import tomllib
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.oid import NameOID

pytest.importorskip("nvflare", reason="start-up kits are made by NVIDIA FLARE, of the extra 'flare'")

from nvflare.private.fed.client.fed_client import FederatedClient

from codedfl.deploy.flare.cells import LONGEST_START, PatientStart
from codedfl.deploy.flare.kits import Kits, load_kits, make_kits, write_private
from codedfl.deploy.flare.names import site_names
from codedfl.deploy.flare.processes import kits_of, start
from codedfl.deploy.server.fleet import PATIENCE
from codedfl.errors import EngineError, UsageError

SITES = site_names(2)
SETTINGS = {"device-2": {"host": "codedfl.somewhere:else", "data": {"file": "mine.npz"}}, "server": {"runs": "runs"}}


@pytest.fixture(scope="module")
def kits(tmp_path_factory: pytest.TempPathFactory) -> Kits:
    return make_kits(tmp_path_factory.mktemp("deploy") / "kits", SITES, settings=SETTINGS)


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_they_are_found_again(kits: Kits) -> None:
    assert load_kits(kits.folder) == kits
    assert kits.sites == SITES
    assert {path.name for path in kits.folder.iterdir()} == {"server", "admin", "kits.json", *SITES}


def test_nobody_else_can_read_them(kits: Kits) -> None:
    for path in [kits.folder, *kits.folder.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_a_kit_holds_one_private_key_and_no_kit_that_of_the_authority(kits: Kits) -> None:
    root = certificate(kits.admin / "startup" / "rootCA.pem").public_key()
    owners = {}
    for path in files(kits.folder):
        if b"PRIVATE KEY" in path.read_bytes():
            key = load_pem_private_key(path.read_bytes(), None)
            assert isinstance(key, rsa.RSAPrivateKey)
            owners[path.relative_to(kits.folder)] = key.public_key().public_numbers()
    keys = [Path("server/startup/server.key"), *(Path(f"{name}/startup/client.key") for name in (*SITES, "admin"))]
    assert sorted(owners) == sorted(keys)
    assert len(set(owners.values())) == len(keys)
    assert isinstance(root, rsa.RSAPublicKey)
    assert root.public_numbers() not in owners.values()


def test_certificates_name_their_owner_and_are_signed_by_one_authority(kits: Kits) -> None:
    root = certificate(kits.server / "startup" / "rootCA.pem")
    for name, file, owner in [("server", "server", "localhost"), *((site, "client", site) for site in SITES)]:
        startup = kits.folder / name / "startup"
        assert (startup / "rootCA.pem").read_bytes() == (kits.server / "startup" / "rootCA.pem").read_bytes()
        one = certificate(startup / f"{file}.crt")
        assert one.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value == owner
        key = load_pem_private_key((startup / f"{file}.key").read_bytes(), None)
        assert one.public_key() == key.public_key()
        issuer = root.public_key()
        assert isinstance(issuer, rsa.RSAPublicKey)
        assert one.signature_hash_algorithm is not None
        issuer.verify(one.signature, one.tbs_certificate_bytes, padding.PKCS1v15(), one.signature_hash_algorithm)


def test_only_this_machine_reaches_the_server_and_both_sides_show_certificates(kits: Kits) -> None:
    server = json.loads((kits.server / "startup" / "fed_server.json").read_text())["servers"][0]
    assert server["service"]["target"] == f"localhost:{kits.port}"
    assert server["admin_port"] == kits.port
    assert server["connection_security"] == "mtls"
    for site in SITES:
        device = json.loads((kits.device(site) / "startup" / "fed_client.json").read_text())
        assert device["servers"][0]["service"]["target"] == f"localhost:{kits.port}"
        assert device["client"]["connection_security"] == "mtls"


def test_sites_take_our_classes_and_no_code(kits: Kits) -> None:
    allowed = {kits.server: "controller.CarrierController"} | {
        kits.device(site): "executor.HostExecutor" for site in SITES
    }
    for kit, name in allowed.items():
        resources = json.loads((kit / "local" / "resources.json").read_text())
        assert resources["class_list_enforcement_mode"] == "enforce"
        assert resources["class_allow_list"] == [f"codedfl.deploy.flare.{name}"]
        permissions = json.loads((kit / "local" / "authorization.json").read_text())["permissions"]
        assert list(permissions) == ["project_admin"]
        assert permissions["project_admin"]["byoc"] == permissions["project_admin"]["shell_commands"] == "none"


def test_devices_are_patient_when_they_start(kits: Kits) -> None:
    """Also between their cell and their registration; FLARE's clients take what they are told."""
    for site in SITES:
        resources = json.loads((kits.device(site) / "local" / "resources.json").read_text())
        paths = [component["path"] for component in resources["components"]]
        assert f"{PatientStart.__module__}.{PatientStart.__qualname__}" in paths
        client = FederatedClient(
            "a", server_args={}, client_args=resources["client"], secure_train=False, components={}
        )
        assert client.engine_create_timeout == LONGEST_START


def test_settings_are_those_of_the_site(kits: Kits) -> None:
    read = {name: tomllib.loads((kits.folder / name / "site.toml").read_text()) for name in ("server", *SITES)}
    assert read["server"] == {"name": "server", "runs": "runs"}
    assert read["device-1"] == {"name": "device-1"}
    assert read["device-2"] == {"name": "device-2"} | SETTINGS["device-2"]


def test_real_hosts(tmp_path: Path) -> None:
    kits = make_kits(tmp_path / "kits", ["clinic-a"], host="fl.example.org", port=8002)
    assert kits.server == tmp_path / "kits" / "server"
    device = json.loads((kits.device("clinic-a") / "startup" / "fed_client.json").read_text())
    assert device["servers"][0]["service"]["target"] == "fl.example.org:8002"
    admin = json.loads((kits.admin / "startup" / "fed_admin.json").read_text())["admin"]
    assert (admin["host"], admin["port"]) == ("fl.example.org", 8002)
    owner = certificate(kits.server / "startup" / "server.crt").subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    assert owner[0].value == "fl.example.org"


@pytest.mark.parametrize(
    ("sites", "host", "port", "complaint"),
    [
        ([], "localhost", None, "at least one site"),
        (["a", "a"], "localhost", None, "a name of its own"),
        (["server"], "localhost", None, "cannot be the name"),
        (["a"], "a", None, "both the server's host and a site"),
        (["a"], "localhost", 0, "not a port"),
        (["a"], "localhost", 65536, "not a port"),
        (["a"], "not a host", 8002, "cannot be the server's host"),
    ],
)
def test_requests_that_make_no_sense(
    tmp_path: Path, sites: list[str], host: str, port: int | None, complaint: str
) -> None:
    with pytest.raises(UsageError, match=complaint):
        make_kits(tmp_path / "kits", sites, host=host, port=port)


def test_kits_are_never_written_over(kits: Kits) -> None:
    with pytest.raises(UsageError, match="not an empty folder"):
        make_kits(kits.folder, SITES)


def test_a_folder_without_kits(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="holds no start-up kits"):
        load_kits(tmp_path)


def test_a_private_file_stays_private_when_written_over(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(b"longer than what follows")
    path.chmod(0o644)
    write_private(path, b"short")
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"short", 0o600)


def test_a_port_that_is_taken_is_named(kits: Kits) -> None:
    assert kits_of(kits) == [kits.server, *map(kits.device, SITES)]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", kits.port))
        taken.listen()
        with pytest.raises(EngineError, match=f"cannot use port {kits.port}"):
            start(kits.server)


def test_messages_are_kept_for_less_long_on_one_machine(kits: Kits, tmp_path: Path) -> None:
    """FLARE keeps every message, and a thread for it, for as long as it may be sent again."""
    far = make_kits(tmp_path / "kits", SITES, host="fl.example.org", port=8002)
    for made, seconds in ((kits, 4.0), (far, 30.0)):
        for kit in kits_of(made):
            found = json.loads((kit / "local" / "comm_config.json").read_text())
            assert (found["streaming_retry_timeout"], found["streaming_retry_wait"]) == (seconds, seconds / 2)


def test_between_hosts_little_of_a_parcel_is_on_its_way_at_a_time(kits: Kits, tmp_path: Path) -> None:
    """A ping behind it must be answered long before the site is taken for lost, here at 1 Mbit/s."""
    far = make_kits(tmp_path / "kits", SITES, host="fl.example.org", port=8002)
    for kit in kits_of(far):
        found = json.loads((kit / "local" / "comm_config.json").read_text())
        assert found["streaming_ack_interval"] <= found["streaming_window_size"]
        assert 8 * (found["streaming_window_size"] + found["streaming_chunk_size"]) / 1e6 < PATIENCE / 4
    for kit in kits_of(kits):
        assert "streaming_window_size" not in json.loads((kit / "local" / "comm_config.json").read_text())
