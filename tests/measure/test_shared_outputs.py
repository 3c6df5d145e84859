"""Outputs of slow source models that the workers of one process share."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from autoopt.measure.quality import shared_outputs
from autoopt.measure.quality.shared_outputs import LEAST_SECONDS, load_outputs, store_outputs
from autoopt.working_folder import SHARED_FOLDER

ITEMS = [[np.float32([[1, 2]]), np.int64([3])], [np.float32([[4, 5]]), np.int64([6])]]
"""Two items of a model with two outputs."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that the workers share."""
    monkeypatch.setenv(SHARED_FOLDER, str(tmp_path))
    return tmp_path


def test_outputs_are_loaded_as_they_were_stored(folder: Path) -> None:
    store_outputs("key", ITEMS, LEAST_SECONDS)
    items = load_outputs("key")
    assert items is not None
    for item, original in zip(items, ITEMS, strict=True):
        for array, expected in zip(item, original, strict=True):
            assert isinstance(array, np.ndarray)
            assert array.dtype == expected.dtype
            assert np.array_equal(array, expected)
    assert load_outputs("another key") is None
    assert [file.name for file in folder.iterdir()] == ["outputs-key.npz"]


def test_outputs_that_were_fast_are_computed_again(folder: Path) -> None:
    store_outputs("key", ITEMS, LEAST_SECONDS / 2)
    assert load_outputs("key") is None


@pytest.mark.parametrize("value", [["a", "list"], np.array(["text"]), np.array([{}], dtype=object)])
def test_outputs_that_are_no_numbers_are_not_stored(folder: Path, value: object) -> None:
    store_outputs("key", [[np.zeros(1), value]], LEAST_SECONDS)
    assert load_outputs("key") is None


def test_large_outputs_are_not_stored(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_outputs, "MOST_BYTES", 8)
    store_outputs("key", ITEMS, LEAST_SECONDS)
    assert list(folder.iterdir()) == []


def test_without_a_shared_folder_nothing_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SHARED_FOLDER, raising=False)
    store_outputs("key", ITEMS, LEAST_SECONDS)
    assert load_outputs("key") is None
