from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from autoopt.errors import InputError
from autoopt.model import files


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
