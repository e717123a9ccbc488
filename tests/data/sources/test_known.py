import gzip
import multiprocessing
import os
import shutil
import socket
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from codedfl.data import SOURCES, fetch, load_named
from codedfl.data.sources import download
from codedfl.data.sources import known as sources
from codedfl.data.sources.download import gunzip, http_get, write_atomically
from codedfl.data.sources.origins import DebianPackage, EnvironmentFolder, Mirror, NodePackage, SharedFolder
from codedfl.errors import DataError, DownloadError
from codedfl.progress import silent
from data.small_source import CONTENTS, FILE_NAMES, FILES, LABELS, PIXELS, cached, get, small


def test_mirror_fills_the_cache_and_shows_progress(server, cache, said):
    seen = []
    assert get(small(Mirror(server.address)), said, lambda *step: seen.append(step)) == CONTENTS
    assert cached(cache) == CONTENTS
    assert any(server.address in sentence for sentence in said)
    assert seen[0][0] == seen[0][1] == len(server.contents["train-images-idx3-ubyte.gz"])
    # from now on nobody is asked
    assert get(small()) == CONTENTS


def test_load_named_scales_pixels(server, monkeypatch):
    monkeypatch.setattr(sources, "SOURCES", {"small": small(Mirror(server.address))})
    data = load_named("small")
    assert data.x_train.dtype == np.float32
    np.testing.assert_allclose(data.x_train, PIXELS.reshape(12, 9) / 255, rtol=1e-6)
    np.testing.assert_array_equal(data.y_test, LABELS[:6])


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b + b"x", lambda b: b[:-1] + b"\0", lambda b: b""])
def test_tampered_cache_file_is_refused_and_fetched_anew(server, cache, said, damage):
    get(small(Mirror(server.address)))
    victim = cache / FILE_NAMES[1]
    victim.write_bytes(damage(CONTENTS[FILE_NAMES[1]]) or b"?")
    assert get(small(Mirror(server.address)), said) == CONTENTS
    assert cached(cache) == CONTENTS
    assert f"the cached {victim} does not match its checksum" in said[0]
    assert [sentence for sentence in said if "downloading" in sentence] == [f"downloading {FILE_NAMES[1]}.gz"]


def test_tampered_cache_file_without_another_source_is_an_error(server, cache):
    get(small(Mirror(server.address)))
    (cache / FILE_NAMES[0]).write_bytes(b"altered")
    with pytest.raises(DownloadError, match=r"does not match its checksum.*put train-images-idx3-ubyte \("):
        get(small())


@pytest.mark.parametrize("subfolder", ["", "small"])
@pytest.mark.parametrize("spelling", range(4))
def test_folder_of_the_user_in_every_spelling(tmp_path, monkeypatch, cache, subfolder, spelling):
    folder = tmp_path / "mine" / subfolder
    folder.mkdir(parents=True)
    for file in FILES:
        path = folder / file.spellings[spelling]
        content = CONTENTS[file.name]
        path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    monkeypatch.setenv("CODEDFL_DATA", str(tmp_path / "mine"))
    assert get(small(EnvironmentFolder("small"))) == CONTENTS
    assert cached(cache) == CONTENTS


def test_tampered_folder_file_is_refused_and_the_chain_goes_on(tmp_path, monkeypatch, server, said):
    for name, content in CONTENTS.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / FILE_NAMES[2]).write_bytes(CONTENTS[FILE_NAMES[2]] + b"more")
    (tmp_path / FILE_NAMES[3]).unlink()
    (tmp_path / f"{FILE_NAMES[3]}.gz").write_bytes(b"not gzip")
    monkeypatch.setenv("CODEDFL_DATA", str(tmp_path))
    assert get(small(EnvironmentFolder("small"), Mirror(server.address)), said) == CONTENTS
    downloads = [sentence for sentence in said if "downloading" in sentence]
    assert downloads == [f"downloading {FILE_NAMES[2]}.gz", f"downloading {FILE_NAMES[3]}.gz"]
    with pytest.raises(DownloadError, match="does not match its checksum and is refused"):
        shutil.rmtree(tmp_path / "cache")
        get(small(EnvironmentFolder("small")))


def test_installed_folder(tmp_path, monkeypatch):
    folder = tmp_path / "share" / "datasets" / "small"
    folder.mkdir(parents=True)
    for name, content in CONTENTS.items():
        (folder / f"{name}.gz").write_bytes(gzip.compress(content))
    monkeypatch.setenv("XDG_DATA_DIRS", f"{tmp_path / 'nowhere'}:{tmp_path / 'share'}")
    assert get(small(SharedFolder("datasets/small"))) == CONTENTS


def test_no_source_is_one_sentence_with_every_reason(server, cache, monkeypatch):
    server.contents.clear()
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("XDG_DATA_DIRS", "/nowhere")
    chain = small(
        EnvironmentFolder("small"),
        SharedFolder("datasets/small"),
        NodePackage("package@1", "package/data", 1),
        DebianPackage("package", "usr/share", 1),
        Mirror(server.address),
        Mirror("http://127.0.0.1:9/closed"),
    )
    with pytest.raises(DownloadError) as caught:
        get(chain)
    sentence = str(caught.value)
    assert "\n" not in sentence
    for part in (
        "the cache folder: holds no file",
        "$CODEDFL_DATA: not set",
        "share/datasets/small: not installed",
        "npm is not installed",
        "apt-get is not installed",
        "answered 404",
        "could not be reached",
        "set CODEDFL_DATA",
        *FILE_NAMES,
    ):
        assert part in sentence
    assert cached(cache) == {}


def tampered(server):
    server.contents = {name: gzip.compress(b"x" * 300) for name in server.contents}


def bomb(server):
    server.contents = {name: gzip.compress(bytes(1 << 20)) for name in server.contents}


def endless(server):
    server.contents = {name: os.urandom(1 << 20) for name in server.contents}


def broken_off(server):
    server.missing = 10


def truncated(server):
    server.contents = {name: content[:-9] for name, content in server.contents.items()}


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (tampered, "expands beyond|does not match its checksum"),
        (bomb, "expands beyond"),
        (endless, "sends more than"),
        (broken_off, "broke off"),
        (truncated, "gzip data is broken"),
    ],
)
def test_bad_download_leaves_nothing(server, cache, damage, reason):
    damage(server)
    with pytest.raises(DownloadError, match=reason):
        get(small(Mirror(server.address)))
    assert cached(cache) == {}


@pytest.mark.parametrize("after", range(4))
def test_interrupt_leaves_only_whole_files(server, cache, after):
    calls = []

    def interrupt(done, total):
        calls.append(done)
        if len(calls) > after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        get(small(Mirror(server.address)), progress=interrupt)
    found = cached(cache)
    assert len(found) == after
    assert all(CONTENTS[name] == content for name, content in found.items())


def test_interrupt_while_writing_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def interrupt(handle):
        raise KeyboardInterrupt

    monkeypatch.setattr(download.os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [entry for entry in tmp_path.iterdir() if entry.is_file()] == [path]


def test_cache_that_cannot_be_written_is_one_sentence(tmp_path, monkeypatch, server):
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("CODEDFL_CACHE", str(tmp_path / "file"))
    with pytest.raises(DataError, match=r"cannot be written .* set CODEDFL_CACHE"):
        get(small(Mirror(server.address)))


def fetch_in_a_process(address, results):
    results.put(get(small(Mirror(address))) == CONTENTS)


@pytest.mark.real
def test_processes_that_fetch_at_once_do_not_disturb_each_other(server, cache):
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    workers = [context.Process(target=fetch_in_a_process, args=(server.address, results)) for _ in range(3)]
    for worker in workers:
        worker.start()
    assert all(results.get(timeout=60) for _ in workers)
    for worker in workers:
        worker.join()
    assert cached(cache) == CONTENTS


def test_gunzip_is_bounded():
    assert gunzip(gzip.compress(b"abc"), 3) == b"abc"
    with pytest.raises(DownloadError, match="beyond the 2 bytes"):
        gunzip(gzip.compress(b"abc"), 2)


def test_only_web_addresses_are_opened(tmp_path):
    with pytest.raises(DownloadError, match="not a web address"):
        http_get(f"file://{tmp_path}", 10, silent)


def test_silent_server_is_given_up(monkeypatch):
    monkeypatch.setattr(download, "STALL_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(DownloadError, match="timed out"):
            http_get(f"http://127.0.0.1:{port}/", 10, silent)


def test_cache_directory_follows_the_platform(monkeypatch):
    assert download.cache_directory() == Path(os.environ["CODEDFL_CACHE"])
    monkeypatch.delenv("CODEDFL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert download.cache_directory() == Path("/somewhere/codedfl")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert download.cache_directory() == Path.home() / ".cache" / "codedfl"


def test_digits_are_stratified_and_always_the_same():
    data = load_named("digits")
    assert (data.samples, len(data.x_test), data.inputs, data.classes) == (1442, 355, 64, 10)
    assert data.x_train.min() == 0
    assert data.x_train.max() == 1
    shares = np.bincount(data.y_test) / (np.bincount(data.y_train) + np.bincount(data.y_test))
    assert np.abs(shares - 0.2).max() < 0.01
    np.testing.assert_array_equal(data.x_train, load_named("digits").x_train)
    assert (fetch("digits") / "digits.csv.gz").is_file()


def test_digits_are_those_of_scikit_learn():
    data, (pixels, labels) = load_named("digits"), load_digits(return_X_y=True)
    for label in range(10):
        of_class = (pixels[labels == label] / 16).astype(np.float32)
        cut = len(of_class) - len(of_class) // 5
        np.testing.assert_array_equal(data.x_train[data.y_train == label], of_class[:cut])
        np.testing.assert_array_equal(data.x_test[data.y_test == label], of_class[cut:])


def test_unknown_name_is_refused():
    with pytest.raises(DataError, match="'cifar'; choose one of mnist, fashion, digits"):
        fetch("cifar")


def test_every_source_says_where_it_comes_from():
    for name, source in SOURCES.items():
        assert source.name == name
        assert source.places
        assert all(len(file.sha256) == 64 for file in source.files)


@pytest.mark.network
@pytest.mark.skipif(os.environ.get("CODEDFL_TEST_NETWORK") != "1", reason="CODEDFL_TEST_NETWORK is not 1")
@pytest.mark.parametrize("name", ["mnist", "fashion"])
def test_real_data_arrives(name):
    data = load_named(name)
    assert data.x_train.shape == (60_000, 784)
    assert data.x_test.shape == (10_000, 784)
    assert data.classes == 10
