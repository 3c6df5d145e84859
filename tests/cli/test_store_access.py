"""The store for commands that only read it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autoopt.cli.store_access import existing_store, require_store
from autoopt.engine.tools.lineage_document import lineage_document
from autoopt.engine.tools.measured_model import target_of
from autoopt.errors import InputError
from autoopt.results import RunResult, TargetResult
from autoopt.settings import settings
from autoopt.store import RunRecord
from autoopt.store.finished import result_of


def test_reading_creates_no_store(home: Path) -> None:
    with pytest.raises(InputError, match="no store here; 'autoopt run' creates one"), existing_store():
        raise AssertionError("opened")
    assert not home.exists()


def test_a_database_elsewhere_needs_no_file_here(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOOPT_DB_URL", "postgresql://host/db")
    settings.cache_clear()
    require_store()


def record(status: str, result: dict[str, Any] | None = None) -> RunRecord:
    return RunRecord(id="1f2e", name="r", identity="i", model="m", status=status, result=result or {})


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (record("running"), "run 1f2e is running; no trial has finished yet"),
        (record("cancelled"), "run 1f2e is cancelled; continue with: autoopt resume 1f2e"),
        (
            record("failed", {"error": "disk full"}),
            "run 1f2e failed: disk full; name a run that has a result, as 'autoopt runs' lists them",
        ),
    ],
)
def test_a_run_without_a_result_says_how_to_continue(run: RunRecord, message: str) -> None:
    with pytest.raises(InputError) as caught:
        result_of(run)
    assert str(caught.value) == message


def test_a_run_without_targets_has_none_to_name(filled: dict[str, Any]) -> None:
    with existing_store() as store, pytest.raises(InputError, match=r"has no target 'gpu'; it has a single target"):
        lineage_document(store, filled["run"], "gpu")


def test_a_target_is_found_by_name_and_the_others_are_listed() -> None:
    parts = tuple(TargetResult(name, {}, RunResult(name, "finished")) for name in ("one", "two"))
    result = RunResult("1f2e", "finished", targets=parts)
    assert target_of(result, "two") is parts[1]
    with pytest.raises(InputError, match=r"run 1f2e has no target 'three'; it has: one, two"):
        target_of(result, "three")
