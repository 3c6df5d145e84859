"""The facts on the page of a sweep."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from autoopt.metrics import Estimate, Objective
from autoopt.outcome import Outcome
from autoopt.results import ModelResult, RunResult, SweepEntry, Trial
from autoopt.store import ChainRecord, ModelRecord, RunRecord, SweepRecord
from autoopt.store.memory import MemoryStore
from autoopt.zoo import run_pages
from autoopt.zoo.run_pages import sweep_facts, write_run_pages
from autoopt.zoo.sweep_comparison import EarlierEntry


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    store = MemoryStore(tmp_path / "home", clock=iter(range(1, 1000)).__next__)
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "model.onnx").write_bytes(b"model")
    store.models.add(ModelRecord(store.artifacts.put(tmp_path / "m"), "cnn"))
    return store


def run_of(store: MemoryStore, *ratios: float, violation: float = 0.0) -> str:
    """A run with a trial of its only chain for each ratio."""
    model = store.models.all()[0].artifact
    run = store.runs.create(RunRecord(id="", name="cnn", identity="i", model=model), [ChainRecord("c" * 8, "fold")])
    for number, ratio in enumerate(ratios):
        trial = Trial(run=run.id, number=number, chain_id="c" * 8, point={}, chain="fold")
        store.trials.add(trial)
        values = {"status": "done", "outcome": Outcome.OK, "violation": violation}
        done = {**vars(trial), **values, "ratios": {"latency_p50": Estimate.exact(ratio)}}
        store.trials.finish(Trial(**done))
    return run.id


def entry(name: str, run: str, ratio: float, goal: str = "minimize") -> SweepEntry:
    best = ModelResult(chain="fold", ratios={"latency_p50": Estimate.exact(ratio)})
    objectives = (Objective("latency_p50", goal),)
    return SweepEntry(name, "ok", result=RunResult(run, "finished", best=best, objectives=objectives))


def test_the_best_feasible_ratio_of_each_chain_counts(store: MemoryStore) -> None:
    good = entry("good", run_of(store, 0.9, 0.5, 0.7), 0.5)
    bad = entry("bad", run_of(store, 0.4, violation=1.0), 0.4)
    other = entry("other", run_of(store, 2.0), 2.0, goal="maximize")
    sweep = store.sweeps.create(SweepRecord(id="", name="zoo"))
    entries = [good, bad, other, SweepEntry("failed", "failed")]
    facts = sweep_facts(store, sweep.id, entries, {item.name: [] for item in entries})
    assert facts.chains == {"good": {"fold": Estimate.exact(0.5)}, "bad": {}}


def test_nights_are_in_the_order_of_time_with_this_one_last(store: MemoryStore) -> None:
    run = run_of(store, 0.5)
    sweeps = [store.sweeps.create(SweepRecord(id="", name="zoo")).id for _ in range(3)]
    first, second, now = (entry("cnn", run, ratio) for ratio in (0.7, 0.6, 0.5))
    earlier = {"cnn": [EarlierEntry(sweeps[1], second), EarlierEntry(sweeps[0], first)]}
    nights = sweep_facts(store, sweeps[2], [now], earlier).nights["cnn"]
    assert [night.ratio.value for night in nights] == [0.7, 0.6, 0.5]
    assert sorted(night.time for night in nights) == [night.time for night in nights]


def test_the_oldest_pages_of_earlier_sweeps_are_deleted(
    store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_pages, "KEPT_PAGES", 2)
    folder = tmp_path / "out" / "reports"
    folder.mkdir(parents=True)
    run = run_of(store, 0.5)
    others = [f"{number:012x}" for number in range(4)]
    for age, name in enumerate([*others, run, "notes"]):
        (folder / f"{name}.html").touch()
        os.utime(folder / f"{name}.html", (age, age) if name in others else (0, 0))
    written = write_run_pages(store, [entry("cnn", run, 0.5)], tmp_path / "out")
    left = {run, "notes", *others[2:]}
    assert {page.stem for page in folder.iterdir()} == left
    assert set(written) == left
