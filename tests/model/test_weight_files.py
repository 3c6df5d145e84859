"""Files of weights: stored once by content, renewed when used, and written again on demand."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from autoopt.model import weight_files
from autoopt.model.weight_files import FileBytes, NotSplit, WeightFiles

DATA = bytes(range(256)) * 20
DIGEST = hashlib.sha256(DATA).hexdigest()


@pytest.fixture(params=["at once", "in chunks"])
def weights(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WeightFiles:
    """A folder whose weights are held in memory while they are written, or read twice."""
    if request.param == "in chunks":
        monkeypatch.setattr(weight_files, "READ_ONCE", 0)
        monkeypatch.setattr(weight_files, "CHUNK", 1000)
    return WeightFiles(tmp_path)


def test_a_use_renews_the_time_of_an_old_weight(weights: WeightFiles) -> None:
    path = weights.path(weights.add(DATA, 0, len(DATA)).digest)
    os.utime(path, (1, 1))
    weights.add(DATA, 0, len(DATA))
    assert path.stat().st_mtime > 1


@pytest.mark.parametrize("damaged", [b"short", bytes(len(DATA))])
def test_a_damaged_weight_is_written_again(weights: WeightFiles, damaged: bytes) -> None:
    path = weights.path(weights.add(DATA, 0, len(DATA)).digest)
    path.chmod(0o644)
    path.write_bytes(damaged)
    weights.add(DATA, 0, len(DATA), replace=True)
    assert path.read_bytes() == DATA


def test_bytes_of_a_file_are_read_in_parts(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(DATA)
    with path.open("rb") as file:
        data = FileBytes(file.fileno())
        assert len(data) == len(DATA)
        assert data[10:20] == DATA[10:20]
        assert data[len(DATA) - 2 : len(DATA) + 2] == DATA[-2:]
        os.truncate(path, 15)
        with pytest.raises(NotSplit):
            data[10:20]
