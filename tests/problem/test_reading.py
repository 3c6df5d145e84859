"""The value of a call that has to succeed, or the error that names what it read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from autoopt.errors import ErrorRecord, InputError, SystemFailure
from autoopt.outcome import Outcome
from autoopt.problem import reading
from autoopt.problem.reading import READ_SECONDS, admission_seconds, ask_worker, read_once, value_of
from autoopt.workers import CallResult, WorkerPool


def test_a_good_call_has_a_value() -> None:
    assert value_of(CallResult(Outcome.OK, {"a": 1}), "model.onnx") == {"a": 1}


@pytest.mark.parametrize(
    ("outcome", "message"),
    [
        (Outcome.OUT_OF_MEMORY, "model.onnx: reading it exceeds the memory limit"),
        (Outcome.TIMEOUT, "model.onnx: reading it takes more than 60 s"),
        (Outcome.CRASHED, r"model.onnx: reading it crashes the process \(SIGSEGV\)"),
    ],
)
def test_a_broken_worker_names_what_it_read(outcome: Outcome, message: str) -> None:
    with pytest.raises(InputError, match=message):
        value_of(CallResult(outcome, message="SIGSEGV"), "model.onnx")


@pytest.mark.parametrize("outcome", [Outcome.REFUSED, Outcome.FAILED])
def test_the_workers_own_error_is_raised_again(outcome: Outcome) -> None:
    error = ErrorRecord("InputError", "not a model", where="", remedy="give an ONNX file")
    called = CallResult(outcome, message="not a model", error=error)
    with pytest.raises(InputError, match=r"model\.onnx: not a model; give an ONNX file"):
        value_of(called, "model.onnx")


def test_a_place_is_not_named_twice() -> None:
    called = CallResult(Outcome.FAILED, message="model.onnx is truncated")
    with pytest.raises(InputError) as error:
        value_of(called, "model.onnx")
    assert str(error.value) == "model.onnx is truncated"


def test_any_other_end_is_a_failure_of_the_system() -> None:
    with pytest.raises(SystemFailure):
        value_of(CallResult(Outcome.OK, None, message="no value"), "model.onnx")


def test_what_was_killed_from_outside_is_read_once_more(tmp_path: Path) -> None:
    with WorkerPool(size=1, env={"PYTHONPATH": str(Path(__file__).parents[1])}) as pool:
        assert ask_worker(pool, "jobs:killed_once", {"mark": str(tmp_path / "mark")}, "data") == {"read": True}


def test_a_large_model_has_more_time_to_be_stored(tmp_path: Path) -> None:
    with (tmp_path / "model.onnx.data").open("wb") as file:
        file.truncate(4_400_000_000)  # takes no room
    assert admission_seconds(str(tmp_path / "model.onnx")) == pytest.approx(READ_SECONDS + 220)
    assert admission_seconds(str(tmp_path)) == pytest.approx(READ_SECONDS + 220)
    assert admission_seconds("s3://models/model.onnx") == READ_SECONDS


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
    monkeypatch.setattr(reading, "_reading_code", lambda: "of the next version")
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
