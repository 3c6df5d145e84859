"""The pages of a sweep's runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autoopt.errors import InputError
from autoopt.results import EntryComparison, RunResult, SweepEntry
from autoopt.store import ModelRecord, RunRecord
from autoopt.store.leases import finish_run
from autoopt.store.memory import MemoryStore
from autoopt.zoo.run_pages import write_run_pages


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    return MemoryStore(tmp_path / "home")


def entry(store: MemoryStore, folder: Path) -> SweepEntry:
    model = folder / "source"
    model.mkdir(exist_ok=True)
    (model / "model.onnx").write_bytes(b"model")
    artifact = store.artifacts.put(model)
    store.models.add(ModelRecord(artifact, "cnn"))
    run = store.runs.create(RunRecord(id="", name="cnn", identity="i", model=artifact), [])
    result = RunResult(run.id, "nothing meets the constraints")
    finish_run(store, run.id, result.to_json())
    return SweepEntry("cnn", "ok", result=result)


def test_each_run_has_a_page_that_stays_for_later_nights(store: MemoryStore, tmp_path: Path) -> None:
    out = tmp_path / "out"
    tonight = entry(store, tmp_path)
    (out / "reports").mkdir(parents=True)
    (out / "reports" / "earlier.html").write_text("an earlier night")
    pages = write_run_pages(store, [tonight, SweepEntry("failed", "failed")], out)
    assert pages == {tonight.run: f"reports/{tonight.run}.html", "earlier": "reports/earlier.html"}
    page = out / pages[tonight.run]
    assert "No model meets the constraints." in page.read_text()
    page.write_text("kept")
    write_run_pages(store, [tonight], out)
    assert page.read_text() == "kept"


def test_pages_of_changed_models_come_first_where_there_are_too_many(
    store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autoopt.zoo.run_pages.MOST_PAGES", 2)
    same, other, worse = (entry(store, tmp_path) for _ in range(3))
    worse = replace(worse, compared=EntryComparison("worse"))
    assert write_run_pages(store, [same, other, worse], tmp_path / "out").keys() == {worse.run, same.run}
    assert other.run in write_run_pages(store, [same, other, worse], tmp_path / "out"), "the next sweep continues"


def test_a_folder_that_cannot_be_written_is_named(store: MemoryStore, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    with pytest.raises(InputError, match="cannot write the reports"):
        write_run_pages(store, [], tmp_path / "out")
