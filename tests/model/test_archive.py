"""Archives of models: what comes out, and what must not."""

from __future__ import annotations

import io
import os
import tarfile
import zipfile
from pathlib import Path

import pytest

from autoopt.errors import InputError
from autoopt.model import archive


def tar(path: Path, *members: tuple[str, bytes | None], mode: str = "w:gz") -> Path:
    """`None` as content is a link to /etc/passwd."""
    with tarfile.open(path, mode) as made:  # type: ignore[call-overload]
        for name, content in members:
            info = tarfile.TarInfo(name)
            if content is None:
                info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
            info.size = len(content or b"")
            made.addfile(info, io.BytesIO(content or b""))
    return path


def unpack(source: Path, dest: Path) -> list[str]:
    models: list[str] = archive.unpack({"source": str(source), "dest": str(dest)})["models"]
    return models


def test_models_and_what_lies_beside_them(tmp_path: Path) -> None:
    source = tar(tmp_path / "a.tar.gz", ("x/m.onnx", b"1"), ("x/weights.bin", b"2"), ("link.onnx", None))
    assert unpack(source, tmp_path / "out") == ["x/m.onnx"]
    assert (tmp_path / "out" / "x" / "weights.bin").read_bytes() == b"2"
    assert not os.path.lexists(tmp_path / "out" / "link.onnx")


@pytest.mark.parametrize("name", ["../m.onnx", "/m.onnx", "a/../../m.onnx"])
def test_nothing_is_written_outside(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="leads out of it"):
        unpack(tar(tmp_path / "a.tgz", (name, b"1")), tmp_path / "out")
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as made:
        made.writestr(name, b"1")
    with pytest.raises(InputError, match="leads out of it"):
        unpack(tmp_path / "a.zip", tmp_path / "out")
    assert not list(tmp_path.parent.glob("m.onnx"))


def test_a_bomb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "FLOOR", 1000)
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("m.onnx", bytes(10_000_000))
    with pytest.raises(InputError, match="far more than its own size"):
        unpack(tmp_path / "a.zip", tmp_path / "out")


@pytest.mark.parametrize("name", ["a.zip", "a.tar.gz", "a.tar"])
def test_no_archive(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"nonsense")
    with pytest.raises(InputError, match="cannot be unpacked"):
        unpack(tmp_path / name, tmp_path / "out")
