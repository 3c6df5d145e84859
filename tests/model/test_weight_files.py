"""Files of weights: stored once by content, renewed when used, and written again on demand."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from autoopt.model.weight_files import Content, FilePart, Slice, WeightFiles, chunks_of

DATA = bytes(range(256)) * 20
WEIGHT = Slice(hashlib.sha256(DATA).hexdigest(), 0, len(DATA))


@pytest.fixture(params=["memory", "file"])
def content(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Content]:
    if request.param == "memory":
        yield DATA
        return
    path = tmp_path / "file"
    path.write_bytes(b"before" + DATA + b"behind")
    with path.open("rb") as file:
        yield FilePart(file.fileno(), 6, 6 + len(DATA))


def test_a_use_renews_the_time_of_an_old_weight(content: Content, tmp_path: Path) -> None:
    weights = WeightFiles(tmp_path)
    assert weights.add(content) == WEIGHT
    path = weights.path(WEIGHT.digest)
    os.utime(path, (1, 1))
    weights.add(content)
    assert path.stat().st_mtime > 1


@pytest.mark.parametrize("damaged", [b"short", bytes(len(DATA))])
def test_a_damaged_weight_is_written_again(content: Content, damaged: bytes, tmp_path: Path) -> None:
    weights = WeightFiles(tmp_path)
    path = weights.path(weights.add(content).digest)
    path.chmod(0o644)
    path.write_bytes(damaged)
    weights.add(content, replace=True)
    assert path.read_bytes() == DATA


def test_parts_of_weights_make_a_file(content: Content, tmp_path: Path) -> None:
    weights = WeightFiles(tmp_path)
    digest = weights.add(content).digest
    parts = [Slice(digest, 10, 20), WEIGHT]
    weights.write(parts, tmp_path / "made")
    assert (tmp_path / "made").read_bytes() == b"".join(weights.read(parts)) == DATA[10:20] + DATA
    with pytest.raises(EOFError):
        list(weights.read([Slice(digest, 0, len(DATA) + 1)]))


def test_a_file_that_became_shorter_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(DATA)
    with path.open("rb") as file:
        os.truncate(path, 15)
        with pytest.raises(EOFError):
            list(chunks_of(FilePart(file.fileno(), 10, 20)))
