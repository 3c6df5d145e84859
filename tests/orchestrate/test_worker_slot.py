"""Idle flow runs release their slots: one for each flow run that waits, agreed on in the store."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import httpx
import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from autoopt.orchestrate.flow_runs import worker_slot
from autoopt.orchestrate.flow_runs.worker_slot import GAVE_WAY, WorkerSlot
from autoopt.store import ModelRecord, RunRecord, Store


@pytest.fixture
def run(store: Store, tmp_path: Path) -> str:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "model.onnx").write_bytes(b"x")
    model = store.artifacts.put(tmp_path / "m")
    store.models.add(ModelRecord(artifact=model, name="m"))
    return store.runs.create(RunRecord(id="", name="r", identity="i", model=model)).id


class Slot(WorkerSlot):
    """A slot whose server reports `waiting`, or does not answer."""

    waiting: tuple[str, ...] = ()
    error: Exception | None = None
    asked = 0

    def _waiting_flow_runs(self) -> list[str]:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return list(self.waiting)


@pytest.fixture
def slots(store: Store, run: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Slot, Slot]:
    monkeypatch.setattr(worker_slot, "CHECK_SECONDS", (0.0, 0.0))
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"}):  # else Prefect starts a server
        return Slot(store, run, uuid4()), Slot(store, run, uuid4())


def test_a_slot_is_kept_while_nobody_waits(slots: tuple[Slot, Slot]) -> None:
    assert not slots[0].is_needed()


def test_one_slot_is_released_for_each_waiting_flow_run(store: Store, slots: tuple[Slot, Slot]) -> None:
    first, second = slots
    first.waiting = second.waiting = ("w1",)
    assert first.is_needed()
    assert not second.is_needed(), "a slot was released for it already"
    second.waiting = ("w1", "w2")
    assert second.is_needed()
    assert sorted(str(event.subject) for event in store.events.all(kind=GAVE_WAY)) == ["w1", "w2"]


def test_another_slot_is_released_for_a_flow_run_that_still_waits(
    slots: tuple[Slot, Slot], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = slots
    first.waiting = second.waiting = ("w1",)
    assert first.is_needed()
    monkeypatch.setattr(worker_slot, "RENEWAL_SECONDS", -1.0)
    assert second.is_needed(), "another flow run took the slot that the first one released"


def test_a_server_that_does_not_answer_needs_no_slot(slots: tuple[Slot, Slot]) -> None:
    slots[0].error = httpx.ConnectError("gone")
    assert not slots[0].is_needed()


def test_the_server_is_asked_only_now_and_then(slots: tuple[Slot, Slot], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_slot, "CHECK_SECONDS", (3600.0, 3600.0))
    for _ in range(3):
        slots[0].is_needed()
    assert slots[0].asked == 1
