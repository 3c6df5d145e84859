"""The pages of the runs of a sweep."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from autoopt.results import RunResult, SweepEntry
from autoopt.store import ModelRecord, RunRecord
from autoopt.store.memory import MemoryStore
from autoopt.zoo import run_pages
from autoopt.zoo.run_pages import write_run_pages


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    store = MemoryStore(tmp_path / "home", clock=iter(range(1, 1000)).__next__)
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "model.onnx").write_bytes(b"model")
    store.models.add(ModelRecord(store.artifacts.put(tmp_path / "m"), "cnn"))
    return store


def test_the_oldest_pages_of_earlier_sweeps_are_deleted(
    store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_pages, "KEPT_PAGES", 2)
    folder = tmp_path / "out" / "reports"
    folder.mkdir(parents=True)
    run = store.runs.create(RunRecord(id="", name="cnn", identity="i", model=store.models.all()[0].artifact)).id
    others = [f"{number:012x}" for number in range(4)]
    for age, name in enumerate([*others, run, "notes"]):
        (folder / f"{name}.html").touch()
        os.utime(folder / f"{name}.html", (age, age) if name in others else (0, 0))
    written = write_run_pages(store, [SweepEntry("cnn", "ok", result=RunResult(run, "finished"))], tmp_path / "out")
    left = {run, "notes", *others[2:]}
    assert {page.stem for page in folder.iterdir()} == left
    assert set(written) == left
