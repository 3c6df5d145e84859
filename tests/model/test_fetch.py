from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import builders
import fsspec
import pytest

from autoopt.errors import InputError
from autoopt.model import worker
from autoopt.model.fetch import beside, fetch, is_url
from autoopt.model.io import save


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
    assert worker.admit(payload) == {**local, "path": str(tmp_path / "b")}
    assert sorted(p.name for p in (tmp_path / "cache").iterdir()) == ["content", "urls"]
