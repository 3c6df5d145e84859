"""Flow runs of dead processes, found in a real store."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoopt.orchestrate.flow_runs.orphaned_runs import (
    BEGUN,
    CLOSED,
    close_orphans,
    orphaned_runs,
    record_flow_run,
)
from autoopt.store import EventRecord, ModelRecord, RunRecord, Store


@pytest.fixture
def runs(store: Store, tmp_path: Path) -> tuple[str, str]:
    """Two runs of one model."""
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "model.onnx").write_bytes(b"x")
    model = store.artifacts.put(tmp_path / "m")
    store.models.add(ModelRecord(artifact=model, name="m"))
    first, second = (store.runs.create(RunRecord(id="", name="r", identity=name, model=model)) for name in "ab")
    return first.id, second.id


def dead_process(store: Store) -> str:
    """The owner of a process of this machine that has ended."""
    parts = store.owner.split("/")
    return "/".join([*parts[:3], str(2**22 + 1), *parts[4:]])


def begin(store: Store, run: str, flow_run: str, owner: str) -> None:
    store.events.add(EventRecord(kind=BEGUN, run=run, subject=flow_run, data={"owner": owner}))


def test_a_flow_run_of_this_process_is_no_orphan(store: Store, runs: tuple[str, str]) -> None:
    record_flow_run(store, runs[0], "f1")
    assert orphaned_runs(store) == {}
    assert close_orphans(store) == 0, "without orphans Prefect is not even imported"


def test_a_flow_run_of_a_dead_process_is_an_orphan_of_its_run(store: Store, runs: tuple[str, str]) -> None:
    begin(store, runs[0], "f1", dead_process(store))
    begin(store, runs[1], "f2", dead_process(store))
    assert orphaned_runs(store) == {"f1": runs[0], "f2": runs[1]}
    assert orphaned_runs(store, runs[1]) == {"f2": runs[1]}


def test_a_process_of_another_machine_may_still_live(store: Store, runs: tuple[str, str]) -> None:
    begin(store, runs[0], "f1", "elsewhere.0/boot/1/2/3")
    begin(store, runs[0], "f2", "")
    assert orphaned_runs(store) == {}


def test_a_closed_flow_run_is_an_orphan_no_more(store: Store, runs: tuple[str, str]) -> None:
    begin(store, runs[0], "f1", dead_process(store))
    store.events.add(EventRecord(kind=CLOSED, run=runs[0], subject="f1"))
    assert orphaned_runs(store) == {}
