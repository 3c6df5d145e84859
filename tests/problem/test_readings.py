"""Results of reading files, stored by content."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from autoopt.problem import readings
from autoopt.problem.readings import read_once


def test_the_same_content_is_read_once_with_the_files_of_its_reading(tmp_path: Path) -> None:
    reads: list[Path] = []

    def read(folder: Path) -> dict[str, int]:
        reads.append(folder)
        (folder / "inputs.npz").write_text(str(len(reads)))
        return {"number": len(reads)}

    for content, number in (("a", 1), ("a", 1), ("b", 2), ("a", 1)):
        folder, reply = read_once(tmp_path, [content, {"x": 1}], read)
        assert reply == {"number": number}
        assert (folder / "inputs.npz").read_text() == str(number)
    assert len(reads) == 2


def test_what_other_code_read_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read_once(tmp_path, "a", lambda _: {"old": 1})
    monkeypatch.setattr(readings, "_reading_code", lambda: "of the next version")
    assert read_once(tmp_path, "a", lambda _: {"new": 1})[1] == {"new": 1}


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff"])
def test_a_damaged_reading_is_read_again(tmp_path: Path, damage: bytes) -> None:
    folder, _ = read_once(tmp_path, "a", lambda _: {"first": 1})
    (folder / "reply.json").write_bytes(damage)
    assert read_once(tmp_path, "a", lambda _: {"second": 1}) == (folder, {"second": 1})
    assert read_once(tmp_path, "a", lambda _: {"third": 1}) == (folder, {"second": 1})


def test_a_reading_in_use_counts_as_recent(tmp_path: Path) -> None:
    folder, _ = read_once(tmp_path, "a", lambda _: {})
    os.utime(folder, (0, 0))
    read_once(tmp_path, "a", lambda _: {})
    assert folder.stat().st_mtime > 0
