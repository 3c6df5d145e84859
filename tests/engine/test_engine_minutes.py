"""A run whose time is up in the middle of its work: it ends, and what it did not finish counts as never begun."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from children import HANG_SECONDS

from autoopt.engine.work.attempt import Attempt
from autoopt.observer import CallbackObserver
from autoopt.store import open_store
from autoopt.workers import Gate

SCRIPT = """
import time
from pathlib import Path
from autoopt import register

HOLD = Path(__file__).parent / "hold"

@register("waits")
def waits(model):
    while HOLD.exists():
        time.sleep(0.05)
    model.graph.node[0].doc_string = "changed"
    return model
"""


@pytest.fixture
def dag(tmp_path: Path) -> dict[str, Any]:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    kept = {"objectives": [{"metric": "size"}], "constraints": [], "user_script": str(script)}
    return {"passes": {"waits": {"pass": "waits"}}, "chains": [["waits"]], **kept}


def outcomes(home: Path) -> list[str]:
    """Of the trials of the latest run."""
    with open_store(None, home) as store:
        return [str(trial.outcome) for trial in store.trials.all(store.runs.get("latest").id)]


def test_a_run_does_not_wait_for_another_ones_measurement_beyond_its_time(
    go: Any, dag: dict[str, Any], mlp_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measuring, over = threading.Event(), threading.Event()

    def measure() -> None:
        with Gate().measuring():
            measuring.set()
            assert over.wait(HANG_SECONDS)

    other = threading.Thread(target=measure)

    def begin(event: str, **_: Any) -> None:
        if event == "trial_begins":
            other.start()
            assert measuring.wait(HANG_SECONDS)
            monkeypatch.setattr(Attempt, "remaining", lambda _: 0.1)

    try:
        first = go(dag, model=mlp_file, search={"minutes": 60.0}, observer=CallbackObserver(begin))
        assert first.trials["timeout"] == 1
    finally:
        over.set()
    other.join()
    monkeypatch.undo()
    assert go(dag, model=mlp_file, search={"minutes": 10.0}).trials["ok"] == 1
