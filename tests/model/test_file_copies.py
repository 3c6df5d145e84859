"""Copies have the content of their original, whatever the kernel does for them."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from autoopt.model import file_copies
from autoopt.model.file_copies import append_part, copy_file

DATA = os.urandom(3 * file_copies.BLOCK + 17)
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
@pytest.mark.parametrize("size", [0, 1, file_copies.BLOCK, len(DATA)])
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
