"""The causes that a night looks for by itself; the bisections are real."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from builders import mlp, write
from wheels import write_wheel

from autoopt.engine.sweeps.causes import Causes
from autoopt.engine.sweeps.request import SweepRequest
from autoopt.engine.sweeps.sweep import run_sweep
from autoopt.engine.work.environment import versions
from autoopt.observer import Observer
from autoopt.report.sweeps.sweep_comparison import EarlierEntry
from autoopt.results import EntryComparison, SweepEntry
from autoopt.store import open_store

OLD = "0.0.1"
DAG = """\
name: small
passes: {fold: {pass: identity_elimination}}
chains: [[fold]]
constraints: []
measurement: {seconds: 0.05, replicas: 1, target_width: 1.0, rounds: 0}
"""


class Recorder(Observer):
    def __init__(self) -> None:
        self.phases: list[str] = []
        self.ended: list[str] = []

    def on_phase(self, name: str) -> None:
        self.phases.append(name)

    def on_model_end(self, entry: SweepEntry) -> None:
        self.ended.append(entry.name)


def test_a_model_that_another_runtime_made_slower_without_its_ratio_is_a_regression(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tonight's best models are called the same as on the night of the older runtime; one of them is much slower."""
    # The module itself is borrowed from this interpreter.
    write_wheel(tmp_path / "wheels", "onnxruntime", OLD)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    write(mlp(), tmp_path / "small")
    write(mlp(width=1 << 17), tmp_path / "large")  # a hundred times slower, whatever else the machine does
    (tmp_path / "dag.yaml").write_text(DAG)
    (tmp_path / "zoo.yaml").write_text("name: nightly\ndag: dag.yaml\nmodels: [small, large]\n")
    recorder = Recorder()
    request = SweepRequest(zoo=tmp_path / "zoo.yaml", home=tmp_path / "home", observer=recorder, bisect_minutes=1)
    before = run_sweep(replace(request, bisect_minutes=0.0))
    environment = {"libraries": {**versions(), "onnxruntime": OLD}}
    small, large = (replace(entry, environment=environment) for entry in before.models)
    same = EntryComparison("same", sweep=before.sweep)
    tonight = [
        replace(before.models[1], compared=same),
        replace(before.models[0], compared=same, result=replace(large.result, run=small.run)),  # type: ignore[type-var]
    ]
    earlier = {entry.name: [EarlierEntry(before.sweep, entry)] for entry in (small, large)}
    recorder.ended.clear()
    with open_store(None, tmp_path / "home") as store:
        store.sweeps.finish(before.sweep, "finished", replace(before, models=(small, large)).to_json())
        unchanged, slower = Causes(request, store, "nightly", before.sweep).explain(tonight, earlier)
        spent = Causes(replace(request, bisect_minutes=0.0), store, "nightly", before.sweep).explain(tonight, earlier)

    assert slower.compared.verdict == "worse"
    [change] = slower.compared.changes
    assert change.what == "best model (beside the earlier night's)"
    assert change.after is not None
    assert change.after.low > 1
    assert slower.bisection is not None
    assert [factor.name for factor in slower.bisection.factors] == ["onnxruntime", "best model"]
    assert recorder.ended == ["small"]
    bisected = [phase for phase in recorder.phases if phase.startswith("bisecting")]
    assert bisected == ["bisecting small", "bisecting large"], "the larger rise comes first"
    assert unchanged == tonight[0], "that it is as fast stands in the log"
    assert spent == tonight
