"""Rows of the table that shows a sweep, and the share of finished trials."""

from __future__ import annotations

from typing import Any

import pytest

from autoopt.metrics import Estimate, Objective
from autoopt.orchestrate.flow_runs.progress import ProgressArtifact, SweepProgress, TrialProgress, entry_row
from autoopt.outcome import Outcome
from autoopt.results import EntryComparison, ModelResult, RunResult, SweepEntry, Trial, TrialResult


class Shown(ProgressArtifact):
    """Progress that keeps the percentages."""

    def __init__(self) -> None:
        super().__init__("progress", "")
        self.percentages: list[float] = []

    def show(self, percent: float) -> None:
        self.percentages.append(percent)


@pytest.mark.parametrize(("budget", "expected"), [(4, [25.0, 50.0]), (1, [100.0, 100.0])])
def test_the_share_of_finished_trials_never_exceeds_the_whole(budget: int, expected: list[float]) -> None:
    progress = Shown()
    observer = TrialProgress(progress, budget)
    for number in range(2):
        observer.on_trial_end(Trial(number, "a", TrialResult("c", {}, Outcome.OK)), None)
    assert progress.percentages == expected


def finished(best: bool = True) -> SweepEntry:
    ratios = {"size": Estimate.exact(0.5), "throughput": Estimate.exact(2.0)}
    model = ModelResult(chain="a -> b", artifact="b" * 64, metrics={"throughput": 20.0}, ratios=ratios)
    result = RunResult("1f2e", "finished", best=model, objectives=(Objective("throughput", "maximize"),))
    comparison = EntryComparison("better")
    if best:
        return SweepEntry("cnn", "ok", result=result, compared=comparison)
    return SweepEntry("cnn", "failed", reason="odd\nmodel", compared=EntryComparison("fails"))


def test_a_finished_model_shows_its_objectives_and_its_size() -> None:
    row = entry_row(finished())
    assert (row["model"], row["state"], row["since last good"]) == ("cnn", "ok", "better")
    assert row["result"] == "2.0x higher throughput, 2.0x smaller"
    assert row["throughput"] == "20.0 items/s"
    assert row["artifact"] == "b" * 12
    assert "latency_p50" not in row


def test_a_failed_model_shows_the_reason_in_one_line() -> None:
    row = entry_row(finished(best=False))
    assert (row["state"], row["best chain"], row["artifact"], row["reason"]) == ("failed", "", "", "odd model")


def test_a_sweep_shows_each_model_from_waiting_to_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    states: list[list[Any]] = []

    class Table(SweepProgress):
        def _update(self) -> None:
            states.append([row["state"] for row in self._rows.values()])

    table = Table("night")
    table.on_sweep_start(["cnn", "mlp"])
    table.on_model_start("cnn")
    table.on_model_start("unknown")
    table.on_model_end(finished())
    assert states == [["waiting", "waiting"], ["running", "waiting"], ["ok", "waiting"]]


def test_a_model_that_is_measured_again_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    shares: list[float] = []
    monkeypatch.setattr(ProgressArtifact, "show", lambda progress, percent: shares.append(percent))
    monkeypatch.setattr("autoopt.orchestrate.flow_runs.progress.create_table_artifact", lambda **fields: None)
    sweep = SweepProgress("night")
    sweep.on_sweep_start(["cnn"])
    for _ in range(2):
        sweep.on_model_start("cnn")
        sweep.on_model_end(finished())
    assert shares[-1] == max(shares) == 100.0
