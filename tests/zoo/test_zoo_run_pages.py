"""The facts on the page of a sweep."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autoopt.errors import InputError
from autoopt.results import EntryComparison, RunResult, SweepEntry
from autoopt.store import ModelRecord, RunRecord, Store, open_store
from autoopt.store.leases import finish_run
from autoopt.zoo import sweep_page
from autoopt.zoo.sweep_page import write_run_pages


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = open_store(None, tmp_path / "home")
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "model.onnx").write_bytes(b"model")
    store.models.add(ModelRecord(store.artifacts.put(tmp_path / "m"), "cnn"))
    return store


def finished(store: Store) -> SweepEntry:
    model = store.models.all()[0].artifact
    run = store.runs.create(RunRecord(id="", name="cnn", identity="i", model=model))
    result = RunResult(run.id, "nothing meets the constraints")
    finish_run(store, result.run, result.to_json())
    return SweepEntry("cnn", "ok", result=result)


def test_each_run_has_a_page_for_as_long_as_a_model_has_it(store: Store, tmp_path: Path) -> None:
    out, tonight, before = tmp_path / "out", finished(store), finished(store)
    pages = write_run_pages(store, [before], out, {before.run})
    assert pages == {before.run: f"reports/{before.run}.html"}
    assert "No model meets the constraints." in (out / pages[before.run]).read_text()
    (out / "reports" / "notes.html").touch()
    write_run_pages(store, [tonight, SweepEntry("failed", "failed")], out, {tonight.run, ""})
    assert {page.stem for page in (out / "reports").iterdir()} == {tonight.run, "notes"}


def test_pages_of_changed_models_come_first_where_there_are_too_many(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep_page, "MOST_PAGES", 2)
    same, other, worse = (finished(store) for _ in range(3))
    worse = replace(worse, compared=EntryComparison("worse"))
    entries, out = [same, other, worse], tmp_path / "out"
    in_use = {entry.run for entry in entries}
    assert write_run_pages(store, entries, out, in_use).keys() == {worse.run, same.run}
    assert other.run in write_run_pages(store, entries, out, in_use), "the next sweep continues"


def test_a_folder_that_cannot_be_written_is_named(store: Store, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    with pytest.raises(InputError, match="cannot write the reports"):
        write_run_pages(store, [], tmp_path / "out", ())
