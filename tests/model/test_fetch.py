from __future__ import annotations

import functools
import http.server
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import builders
import fsspec
import pytest
from gated import until

from autoopt.errors import InputError, SystemFailure
from autoopt.model import worker
from autoopt.model.fetch import RemoteFolder, beside, fetch, is_url, open_filesystem
from autoopt.model.io import save
from autoopt.store.remote import RemoteArtifacts


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    folder = tmp_path / "site"
    folder.mkdir()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", folder
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_path_stays_itself(tmp_path: Path) -> None:
    assert fetch("models/a.onnx", tmp_path) == Path("models/a.onnx")
    assert fetch("file:///models/a%20b.onnx", tmp_path) == Path("/models/a b.onnx")
    assert [is_url(s) for s in ("a.onnx", "/a", "C:\\a", "s3://b/a", "zip::http://x/a", "http://x")] == [
        False, False, False, True, True, True,
    ]  # fmt: skip


def test_what_has_not_changed_is_not_kept_twice(site: tuple[str, Path], tmp_path: Path) -> None:
    url, folder = site
    (folder / "a.npz").write_bytes(b"one")
    first = fetch(f"{url}/a.npz", tmp_path / "cache")
    assert first.name == "a.npz"
    assert first.read_bytes() == b"one"
    inode = first.stat().st_ino
    again = fetch(f"{url}/a.npz", tmp_path / "cache")
    assert again == first
    assert again.stat().st_ino == inode


def test_changed_content_does_not_overwrite_the_old(site: tuple[str, Path], tmp_path: Path) -> None:
    url, folder = site
    (folder / "a").write_bytes(b"one")
    first = fetch(f"{url}/a", tmp_path / "cache")
    (folder / "a").write_bytes(b"longer")
    second = fetch(f"{url}/a", tmp_path / "cache")
    assert (first.read_bytes(), second.read_bytes()) == (b"one", b"longer")


def test_any_file_system_of_fsspec(tmp_path: Path) -> None:
    fsspec.filesystem("memory").pipe("/things/model.onnx", b"bytes")
    assert fetch("memory://things/model.onnx", tmp_path).read_bytes() == b"bytes"


def test_failures_are_one_line_without_secrets(site: tuple[str, Path], tmp_path: Path) -> None:
    url, _ = site
    address = url.replace("http://", "http://me:hunter2@") + "/none.onnx?token=hunter2"
    with pytest.raises(InputError) as caught:
        fetch(address, tmp_path)
    assert "hunter2" not in str(caught.value)
    assert "cannot be fetched" in str(caught.value)
    with pytest.raises(InputError, match="cannot be fetched"):
        fetch("memory://nothing/here", tmp_path)
    with pytest.raises(InputError, match="cannot be fetched"):
        fetch("no-such-protocol://x/y", tmp_path)


def test_beside() -> None:
    assert beside("https://h/a/b/m.onnx?sig=1", "w/x.bin") == "https://h/a/b/w/x.bin?sig=1"
    assert beside("s3://bucket/m.onnx", "m.data") == "s3://bucket/m.data"


def test_a_model_comes_with_its_external_data(site: tuple[str, Path], tmp_path: Path) -> None:
    url, folder = site
    save(builders.mlp(width=512), folder, external=True)
    local = worker.admit({"source": str(folder), "dest": str(tmp_path / "a")})
    payload = {"source": f"{url}/model.onnx", "dest": str(tmp_path / "b"), "cache": str(tmp_path / "cache")}
    assert worker.admit(payload) == local
    assert sorted(p.name for p in (tmp_path / "cache").iterdir()) == ["content", "urls"]


pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A bound port, which refuses until it listens, as the S3 server that the environment names."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{bound.getsockname()[1]}")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
            monkeypatch.setenv(name, "us-east-1")
        monkeypatch.delenv("AWS_MAX_ATTEMPTS", raising=False)
        fsspec.get_filesystem_class("s3").clear_instance_cache()  # of another test's server
        yield bound


@pytest.mark.usefixtures("server")
def test_a_server_that_refuses_is_given_up(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^s3://bucket/net\.onnx: cannot be fetched .*Could not connect"):
        fetch("s3://bucket/net.onnx", tmp_path)
    with pytest.raises(SystemFailure, match=r"^s3://bucket/here: an artifact cannot be read .*Could not connect"):
        RemoteArtifacts("s3://bucket/here").pull("0" * 64, tmp_path)


@pytest.mark.parametrize(
    "url", ["s3://bucket/net.onnx", "s3a://bucket/net.onnx", "zip://net.onnx::s3://bucket/all.zip"]
)
def test_a_server_that_never_answers_is_asked_twice(
    server: socket.socket, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[socket.socket] = []

    def accept() -> None:
        while True:
            try:
                asked.append(server.accept()[0])
            except OSError:
                return

    server.listen()
    thread = threading.Thread(target=accept)
    thread.start()
    monkeypatch.setitem(fsspec.config.conf, "s3", {"config_kwargs": {"read_timeout": 0.2}})  # the user's own
    try:
        with pytest.raises(InputError, match=r"cannot be fetched .*[Tt]imeout"):
            fetch(url, tmp_path)
        until(lambda: len(asked) >= 2)
    finally:
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
        for connection in asked:
            connection.close()
    assert len(asked) == 2


def test_the_users_configuration_goes_before(monkeypatch: pytest.MonkeyPatch) -> None:
    config = open_filesystem("s3://bucket")[0].config_kwargs
    assert (config["connect_timeout"], config["read_timeout"], config["retries"]["total_max_attempts"]) == (5, 30, 2)
    monkeypatch.setitem(fsspec.config.conf, "s3", {"config_kwargs": {"connect_timeout": 60}})
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "7")
    assert open_filesystem("s3://bucket")[0].config_kwargs == {"connect_timeout": 60, "read_timeout": 30}


@pytest.mark.parametrize("url", ["reference://::file:///x.json", "reference::file:///x.json", "dask://127.0.0.1:1/x"])
def test_file_systems_that_may_run_code_are_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"(dask|reference):// may run code from elsewhere"):
        fetch(url, tmp_path)


def test_errors_of_a_remote_folder_hide_the_secrets_of_its_address() -> None:
    url = "memory://ann:geheim@host/calls"
    folder = RemoteFolder(url, "cannot exchange calls there")
    with pytest.raises(SystemFailure) as caught, folder.failures("cannot read a call"):
        raise OSError(f"GET {url} was refused")
    assert "cannot read a call (OSError: GET memory://" in str(caught.value)
    assert "geheim" not in str(caught.value)


def test_a_remote_folder_holds_files_below_new_folders(tmp_path: Path) -> None:
    (tmp_path / "here").write_text("content")
    folder = RemoteFolder(f"file://{tmp_path}/there", "no")
    folder.put(tmp_path / "here", folder.root / "a" / "b")
    assert (tmp_path / "there" / "a" / "b").read_text() == "content"
