"""Statistics of calibration that workers share through files."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np
import pytest

from autoopt.passes.quantize import shared_statistics
from autoopt.passes.quantize.histograms import Histogram
from autoopt.passes.quantize.shared_statistics import Statistics, shared
from autoopt.working_folder import SHARED_FOLDER


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(SHARED_FOLDER, str(tmp_path))
    return tmp_path


def complete(statistics: Statistics) -> None:
    low, high = np.float32(-0.1), np.float32(1 / 3)
    statistics.items = 5
    statistics.extremes = {"x": (low, high), "y": (np.float32(-np.inf), np.float32(np.nan))}
    statistics.histograms = {4: {"x": Histogram(np.array([0, 1, 2, 1 << 40]), high, low, high)}}
    statistics.ranges = {"MinMax": '{"x": 1}'}


def test_another_worker_finds_exactly_the_same(folder: Path) -> None:
    first, second = Statistics(["Conv"]), Statistics(["Conv"])
    with shared("model", first):
        complete(first)
    with shared("model", second):
        assert (second.items, second.ranges) == (first.items, first.ranges)
        np.testing.assert_equal(second.extremes, first.extremes)
        found, expected = second.histograms[4]["x"], first.histograms[4]["x"]
        assert found.counts.tolist() == expected.counts.tolist()
        assert (found.bound, found.low, found.high) == (expected.bound, expected.low, expected.high)
    with shared("another model", third := Statistics(["Conv"])):
        assert third == Statistics(["Conv"])


def test_nothing_is_shared_without_a_folder_and_after_a_failure(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Statistics([])

    def fail() -> None:
        with shared("model", first):
            complete(first)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with shared("model", second := Statistics([])):
        assert second == Statistics([])
    monkeypatch.delenv(SHARED_FOLDER)
    with shared("alone", first):
        complete(first)
    assert not [name for name in os.listdir(folder) if "alone" in name]


def test_a_second_worker_waits_for_the_first(folder: Path) -> None:
    second = Statistics([])
    seen: list[int] = []

    def other() -> None:
        with shared("model", second):
            seen.append(second.items)

    thread = threading.Thread(target=other)
    with shared("model", first := Statistics([])):
        thread.start()
        complete(first)
    thread.join()
    assert seen == [5]


def test_old_files_are_removed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_statistics, "FILES", 2)
    for number in range(4):
        with shared(str(number), Statistics([])):
            pass
    assert len(list(folder.glob("*.npz"))) == 2
