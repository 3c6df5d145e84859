"""A run whose time is up in the middle of its work: it ends, and what it did not finish counts as never begun."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from children import HANG_SECONDS

from autoopt.engine.work.context import Attempt
from autoopt.observer import CallbackObserver
from autoopt.workers import Gate

SCRIPT = """
import time
from pathlib import Path
from autoopt import register

HOLD = Path(__file__).parent / "hold"

@register("waits")
def waits(model, size: int = 1):
    while HOLD.exists():
        time.sleep(0.05)
    model.graph.node[0].doc_string = size * "changed"
    return model
"""


@pytest.fixture
def dag(tmp_path: Path) -> dict[str, Any]:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    kept = {"objectives": [{"metric": "size"}], "constraints": [], "user_script": str(script)}
    passes = {"waits": {"pass": "waits", "params": {"size": {"search": [1, 2]}}}}
    return {
        "passes": passes,
        "chains": [["waits"]],
        "search": {"strategy": "per-chain", "sampler": "exhaustive"},
        **kept,
    }


def test_a_run_does_not_wait_for_another_ones_measurement_beyond_its_time(
    go: Any, dag: dict[str, Any], mlp_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measuring, over = threading.Event(), threading.Event()

    def measure() -> None:
        with Gate().measuring():
            measuring.set()
            assert over.wait(HANG_SECONDS)

    other = threading.Thread(target=measure)
    begun: list[str] = []

    def begin(event: str, **_: Any) -> None:
        if event != "trial_begins":
            return
        begun.append(event)
        if len(begun) == 2:  # the pass of the first trial has run before it, to see whether it fails
            other.start()
            assert measuring.wait(HANG_SECONDS)
            monkeypatch.setattr(Attempt, "remaining", lambda _: 0.1)

    try:
        options: dict[str, Any] = {"model": mlp_file, "workers": 1}
        first = go(dag, search={"minutes": 60.0}, observer=CallbackObserver(begin), **options)
        assert (first.trial_counts["ok"], first.trial_counts["timeout"]) == (1, 1)
    finally:
        over.set()
    other.join()
    monkeypatch.undo()
    assert go(dag, search={"minutes": 10.0}, **options).trial_counts["ok"] == 2
