"""`autoopt nights` and `autoopt report --zoo`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from autoopt.results import EntryComparison, SweepEntry, SweepResult
from autoopt.store import SweepRecord, open_store


def add_night(home: Path, status: str) -> str:
    with open_store(None, home) as store:
        sweep = store.sweeps.create(SweepRecord(id="", name="production")).id
        entry = SweepEntry("cnn", status, compared=EntryComparison("new"), environment={"host": "forge"})
        store.sweeps.finish(sweep, "finished", SweepResult(sweep=sweep, name="production", models=(entry,)).to_json())
    return sweep


def test_nights_are_listed_compared_and_written_as_a_page(call: Callable[..., Any], home: Path, tmp_path: Path) -> None:
    first, second = add_night(home, "ok"), add_night(home, "failed")
    code, out, _ = call("nights")
    assert code == 0
    assert out.startswith("nights of production\n")
    assert out.index(second) < out.index(first)
    code, out, _ = call("nights", "production", "--compare", first, "latest")
    assert (code, "cnn    fails" in out) == (0, True)
    code, out, _ = call("report", "--zoo", "production", "-o", str(tmp_path / "zoo.html"))
    assert (code, out) == (0, f"wrote {tmp_path / 'zoo.html'}\n")
    assert "zoo production" in (tmp_path / "zoo.html").read_text()
    code, out, err = call("nights", "other")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "cnn" not in call("nights", "--worse").out
