from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path

import pytest

from autoopt.errors import InputError
from autoopt.model import files
from autoopt.model.files import append_part, copy_file


def lay(folder: Path, contents: dict[str, bytes]) -> Path:
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def test_one_file_is_named_by_its_own_digest(tmp_path: Path) -> None:
    lay(tmp_path, {"model.onnx": b"graph"})
    assert files.digest_folder(tmp_path) == hashlib.sha256(b"graph").hexdigest()
    assert files.digest_file(tmp_path / "model.onnx") == hashlib.sha256(b"graph").hexdigest()


def test_digest_of_several_files_depends_on_names_and_contents_only(tmp_path: Path) -> None:
    contents = {"model.onnx": b"graph", "sub/w": b"weights"}
    reference = files.digest_folder(lay(tmp_path / "a", contents))
    assert files.digest_folder(lay(tmp_path / "b", dict(reversed(contents.items())))) == reference
    others = [
        {"model.onnx": b"graph"},
        {"model.onnx": b"graph", "sub/w": b"weightz"},
        {"model.onnx": b"graph", "sub/v": b"weights"},
        {"model.onnx": b"graph", "sub/w": b"weights", "x": b""},
    ]
    digests = {files.digest_folder(lay(tmp_path / str(n), other)) for n, other in enumerate(others)}
    assert len(digests | {reference}) == 5
    assert files.bytes_in(tmp_path / "a") == 12
    assert list(files.files_in(tmp_path / "a")) == ["model.onnx", "sub/w"]


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="empty"):
        files.digest_folder(tmp_path)
    (tmp_path / "link").symlink_to("/etc/passwd")
    with pytest.raises(InputError, match="not a regular file"):
        files.digest_folder(tmp_path)
    os.remove(tmp_path / "link")


def test_model_in(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no model\.onnx"):
        files.model_in(tmp_path)
    lay(tmp_path, {"model.ort": b"x"})
    assert files.model_in(tmp_path).name == "model.ort"
    lay(tmp_path, {"model.onnx": b"x"})
    assert files.model_in(tmp_path).name == "model.onnx"


def test_an_error_while_reading_names_the_file() -> None:
    with pytest.raises(OSError, match="/proc/self/mem"):
        files.digest_file("/proc/self/mem")


DATA = os.urandom(3 * files.BLOCK + 17)
REAL = os.copy_file_range


def by_kernel(*arguments: int) -> int:
    return REAL(*arguments)


def part_by_part(source: int, target: int, count: int, start: int) -> int:
    return REAL(source, target, min(count, 1000), start)


def unsupported(*_: int) -> int:
    raise OSError(errno.EXDEV, "other file systems")


def ending_half_way(source: int, target: int, count: int, start: int) -> int:
    return REAL(source, target, min(count, 1000), start) if start < 2000 else 0


@pytest.fixture(params=[by_kernel, part_by_part, unsupported, ending_half_way])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Different ways in which the kernel may answer."""
    monkeypatch.setattr(os, "copy_file_range", request.param)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(DATA)
    return path


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("size", [0, 1, files.BLOCK, len(DATA)])
def test_a_copy_replaces_what_was_there(source: Path, size: int) -> None:
    target = source.with_name("target")
    target.write_bytes(b"more than that" * 1000)
    os.truncate(source, size)
    copy_file(source, target)
    assert target.read_bytes() == DATA[:size]


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize(("start", "stop"), [(0, len(DATA)), (4096, 4096), (1, 5000), (4096, len(DATA))])
def test_parts_are_written_one_after_the_other(source: Path, start: int, stop: int) -> None:
    target = source.with_name("target")
    with source.open("rb") as old, target.open("wb", buffering=0) as new:
        new.write(b"head")
        append_part(old.fileno(), start, stop, new.fileno())
        append_part(old.fileno(), 0, 10, new.fileno())
        new.write(b"tail")
    assert target.read_bytes() == b"head" + DATA[start:stop] + DATA[:10] + b"tail"


@pytest.mark.usefixtures("kernel")
def test_a_file_that_became_shorter_is_an_error(source: Path) -> None:
    with source.open("rb") as old, source.with_name("target").open("wb") as new, pytest.raises(EOFError):
        append_part(old.fileno(), 0, len(DATA) + 1, new.fileno())


def test_a_full_disk_is_an_error(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: int) -> int:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(os, "copy_file_range", full)
    with pytest.raises(OSError, match="no space"):
        copy_file(source, source.with_name("target"))
