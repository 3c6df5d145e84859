"""Models that kill, hang or make no sense, through the real command: one outcome each, and work continues."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import builders
import pytest
from commands import Command, fill
from mutants import mutants
from odd_models import odd_models

from autoopt.engine.inputs import sources
from autoopt.engine.work.hosts import Hosts
from autoopt.engine.work.quarantine import quarantined, stored_quarantine
from autoopt.engine.work.resources import Resources
from autoopt.errors import InputError
from autoopt.store import open_store
from autoopt.workers import Gate, WorkerPool

Run = Callable[[Path], tuple[int, Any]]
TESTS = str(Path(__file__).parent.parent)
DAG = """\
name: fuzz
passes: {tidy: {pass: constant_folding}, names: {pass: name_fix}}
chains: [[names, tidy]]
objectives: [{metric: size}]
constraints: []
limits: {pass_seconds: 5, measure_seconds: 5, memory: 1500000000}
measurement: {seconds: 0.02, replicas: 1, target_width: 2.0, rounds: 0}
"""


@pytest.mark.parametrize("which", ["ADMIT", "INSPECT"])
def test_a_model_that_kills_twice_while_it_is_taken_in_is_not_read_a_third_time(
    which: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = builders.write(builders.mlp(), tmp_path / "in")
    monkeypatch.setattr(sources, which, "jobs:die")
    with open_store(None, tmp_path / "home") as store, WorkerPool(size=1, env={"PYTHONPATH": TESTS}) as pool:
        with_pool = Resources(store, pool, Hosts(pool), Gate(), stored_quarantine(store), tmp_path)
        said = []
        for _ in range(3):
            with pytest.raises(InputError) as error:
                sources.admit(with_pool, model)
            said.append(str(error.value))
        assert "quarantined" not in said[0] + said[1]
        assert "is quarantined: it killed its worker 2 times" in said[2]
        assert len(store.events.all(kind="worker death")) == 2
        monkeypatch.undo()
        with pytest.raises(InputError, match="quarantined"):
            sources.admit(with_pool, model)
        other = builders.write(builders.mlp(seed=3), tmp_path / "other")
        assert sources.admit(with_pool, other)[1].op_counts


def test_a_source_model_that_kills_is_one_line_and_tried_again_by_a_retry(command: Command, tmp_path: Path) -> None:
    fill(tmp_path, DAG)
    builders.write(builders.split_abort(), tmp_path)
    known = 0
    for _ in range(3):
        run = ("run", "dag.yaml", "--model", "model.onnx", "--engine", "inline", "--retry-failed")
        code, _, stderr = command(tmp_path, *run)
        assert code == 2, stderr
        announcement, error = stderr.splitlines()
        assert announcement.endswith("searching 1 configuration in 1 chain")
        assert "SIGABRT" in error
        with open_store(None, tmp_path / "home") as store:
            # The first trial's passes run beside the measurement of the source, and may die as well.
            deaths = len(store.events.all(kind="worker death"))
            assert deaths > known, "it was not tried again"
            known = deaths
            in_quarantine = quarantined(store)
    assert in_quarantine


@pytest.fixture
def run(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return `run(model)`, which gives the exit code of a run of a model, and its document or its one line."""
    fill(tmp_path, DAG)
    monkeypatch.setattr(sources, "READ_SECONDS", 5.0)

    def call(model: Path) -> tuple[int, Any]:
        options = ("--engine", "inline", "--json", "--quiet")
        code, out, err = command(tmp_path, "run", "dag.yaml", "--model", str(model), *options)
        if code == 2:
            assert (out, err.count("\n")) == ("", 1)
            assert err[:-1].isprintable()
            return code, err
        assert "Traceback" not in err
        return code, json.loads(out)

    return call


@pytest.mark.parametrize(
    ("count", "seed"), [(50, 1), *(pytest.param(250, seed, marks=pytest.mark.soak) for seed in range(2, 6))]
)
def test_mutants_through_the_command(run: Run, tmp_path: Path, count: int, seed: int) -> None:
    codes: Counter[int] = Counter()
    folder = tmp_path / "mutants"
    folder.mkdir()
    for model in mutants(count, seed, folder):
        code, said = run(model)
        codes[code] += 1
        if code != 2:
            outcomes = {k: v for k, v in said["trials"].items() if k not in ("total", "infeasible")}
            assert sum(outcomes.values()) == said["trials"]["total"] == 1
    assert codes.total() == count
    assert set(codes) <= {0, 1, 2}
    assert codes[0] > count / 10  # those that still run
    assert codes[2] > count / 10
    assert run(tmp_path / "model.onnx")[0] == 0
    with open_store(None, tmp_path / "home") as store:
        assert "running" not in {run.status for run in store.runs.all()}


@pytest.mark.soak
def test_odd_models_through_the_command(run: Run, tmp_path: Path) -> None:
    """`run` checks each: a result, or exit code 2 and one line."""
    codes: Counter[int] = Counter()
    for number, data in enumerate(odd_models().values()):
        model = tmp_path / "mutants" / f"{number}.onnx"
        model.parent.mkdir(exist_ok=True)
        model.write_bytes(data)
        codes[run(model)[0]] += 1
    assert codes.keys() == {0, 2}
    assert min(codes.values()) > 20
