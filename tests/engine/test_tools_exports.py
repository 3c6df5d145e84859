"""Runs and releases for other tools: their content, and an object store, as fsspec's file system in memory shows it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import pytest

from autoopt.engine.tools import exports
from autoopt.engine.tools.exports import parts_of
from autoopt.errors import InputError, SystemFailure
from autoopt.metrics import Estimate
from autoopt.model.candidate import Candidate
from autoopt.outcome import Outcome
from autoopt.results import ModelResult, RunResult, SweepEntry, Trial
from autoopt.results.run import PartResult
from autoopt.results.sweep import Release
from autoopt.store import PassRunRecord, RunRecord, Store, open_store

CHAIN = "c" * 8
HALF = Estimate(0.5, 0.4, 0.6)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(None, tmp_path)


def put(store: Store, content: str) -> str:
    folder = store.home / "made" / content
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_text(content)
    return store.artifacts.put(folder)


def begun(store: Store, name: str = "cnn · quick") -> RunRecord:
    """A run without trials."""
    source = put(store, f"source of {name}")
    record = RunRecord(id="", name=name, identity=name, model=source)
    return store.runs.create(record)


def passed(store: Store, run: RunRecord, name: str, outcome: Outcome, **fields: Any) -> PassRunRecord:
    """A pass run on the source of a run that took half a second; a good one leaves a model of its own."""
    output = None
    if outcome is Outcome.OK:
        output = Candidate(put(store, f"{name} of {run.name}"))
    elif outcome is Outcome.UNCHANGED:
        output = Candidate(run.model)
    record = PassRunRecord(
        key=f"{name} of {run.id}",
        pass_name=name,
        params={},
        input=Candidate(run.model),
        outcome=outcome,
        output=output,
        seconds=0.5,
        run=run.id,
    )
    record = replace(record, **fields)
    assert store.results.finish_pass_run(record)
    return record


def tried(store: Store, run: RunRecord, number: int, *steps: PassRunRecord, **fields: Any) -> None:
    trial = Trial(run.id, number, CHAIN, {"quant": {"bits": number}}, "fold -> quant", outcome=steps[-1].outcome)
    trial = replace(trial, pass_runs=tuple(step.key for step in steps), **fields)
    store.trials.finish(trial)


def ended(store: Store, run: RunRecord, *targets: PartResult) -> RunRecord:
    store.runs.finish(run.id, "finished", RunResult(run.id, "finished", targets=targets).to_json())
    return store.runs.get(run.id)


def test_trials_have_their_figures_and_searched_values(store: Store) -> None:
    run = begun(store)
    step = passed(store, run, "quant", Outcome.OK)
    metrics = {"size": Estimate.exact(10.0), "accuracy": Estimate(0.9, 0.8, 0.95)}
    tried(store, run, 3, step, metrics=metrics, ratios={"size": HALF}, violation=0.1)
    tried(store, run, 4, passed(store, run, "fold", Outcome.FAILED, message="odd"))
    (part,) = parts_of(store, ended(store, run))
    good, bad = part.trials
    assert (part.name, part.record.id) == (run.name, run.id)
    assert good.figures == {
        "size": 10.0, "accuracy": 0.9, "size_ratio": 0.5, "size_ratio_low": 0.4, "size_ratio_high": 0.6,
    }  # fmt: skip
    assert (good.number, bad.number, good.chain) == (3, 4, "fold -> quant")


def test_targets_are_parts_with_their_own_runs(store: Store) -> None:
    whole = begun(store)
    parts = {name: begun(store, f"cnn · quick, {name}") for name in ("phone", "server")}
    targets = []
    for name, run in parts.items():
        tried(store, run, 0, passed(store, run, "quant", Outcome.OK))
        ended(store, run)
        targets.append(PartResult(name, RunResult(run.id, "finished"), {}))
    found = parts_of(store, ended(store, whole, *targets))
    assert {part.name: part.record.id for part in found} == {
        f"{whole.name}-{name}": run.id for name, run in parts.items()
    }
    assert [len(part.trials) for part in found] == [1, 1]


def test_a_run_without_trials_is_refused(store: Store) -> None:
    with pytest.raises(InputError, match="no trial has finished yet"):
        parts_of(store, begun(store))
    with pytest.raises(InputError, match="has no trial in the store"):
        parts_of(store, ended(store, begun(store, "lost")))


@pytest.fixture
def place() -> str:
    """The URL of an empty folder of the store, which all tests of a process share."""
    return f"memory://releases/{uuid.uuid4().hex}"


def release(number: int = 1, name: str = "cnn") -> Release:
    result = RunResult("r1", "finished", best=ModelResult("a" * 64, chain="fold"))
    return Release("production", number, SweepEntry(name, "ok", result=result))


def document(number: int = 1, name: str = "cnn", artifact: str = "a") -> dict[str, object]:
    return {"zoo": "production", "model": name, "number": number, "artifact": artifact * 64}


def package(folder: Path, content: Mapping[str, object], model: str = "model") -> Path:
    (folder / "external").mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_text(model)
    (folder / "external" / "weights.bin").write_text("weights")
    (folder / "release.json").write_text(json.dumps(content))
    return folder


def read(place: str, name: str) -> str:
    return str(fsspec.filesystem("memory").cat_file(f"{place}/{name}").decode())


def current(place: str) -> dict[str, object]:
    return dict(json.loads(read(place, "current.json")))


def test_a_package_is_copied_and_becomes_current_only_with_the_switch(tmp_path: Path, place: str) -> None:
    switch = exports.publish(package(tmp_path, document()), release(), place, document())
    assert read(place, "1/model.onnx") == "model"
    assert read(place, "1/external/weights.bin") == "weights"
    assert not fsspec.filesystem("memory").exists(f"{place}/current.json")
    switch()
    assert current(place) == {**document(), "folder": "1"}


def test_earlier_releases_stay_and_can_become_current_again(tmp_path: Path, place: str) -> None:
    for number in (1, 2):
        folder = package(tmp_path / str(number), document(number), f"model {number}")
        exports.publish(folder, release(number), place, document(number))()
    assert current(place)["folder"] == "2"
    exports.publish(tmp_path / "1", release(1), place, document(1))()
    assert current(place)["folder"] == "1"
    assert read(place, "2/model.onnx") == "model 2"


def test_a_release_that_is_there_is_not_copied_again(tmp_path: Path, place: str) -> None:
    exports.publish(package(tmp_path, document()), release(), place, document())
    exports.publish(package(tmp_path, document(), "changed since"), release(), place, document())()
    assert read(place, "1/model.onnx") == "model"


def test_an_incomplete_copy_is_completed(tmp_path: Path, place: str) -> None:
    fsspec.filesystem("memory").pipe_file(f"{place}/1/model.onnx", b"half a mo")
    exports.publish(package(tmp_path, document()), release(), place, document())
    assert read(place, "1/model.onnx") == "model"
    assert json.loads(read(place, "1/release.json")) == document()


@pytest.mark.parametrize("other", [document(name="mlp"), document(artifact="b"), {**document(), "zoo": "test"}])
def test_the_number_of_another_model_is_refused(tmp_path: Path, place: str, other: dict[str, object]) -> None:
    exports.publish(package(tmp_path, document()), release(), place, document())()
    with pytest.raises(InputError, match=r"/1: is not release production/cnn 1; name another place with --to"):
        exports.publish(tmp_path, release(), place, other)
    assert current(place) == {**document(), "folder": "1"}


def test_a_place_without_a_file_system_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot publish there"):
        exports.publish(package(tmp_path, document()), release(), "nowhere://a/b", document())


def test_a_place_that_cannot_be_written_is_a_failure_of_the_system(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(SystemFailure, match="cannot publish there"):
        exports.publish(package(tmp_path / "p", document()), release(), f"file://{tmp_path}/file/x", document())
