"""Small results to put into a store."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from pathlib import Path
from typing import Any

from autoopt.metrics import Estimate
from autoopt.model.candidate import Candidate, digest_json
from autoopt.outcome import Outcome
from autoopt.results import SweepEntry, Trial
from autoopt.results.sweep import Release
from autoopt.store import EvaluationRecord, ModelRecord, PassRunRecord, RunRecord, Store

CHAIN = digest_json("chain")
ENVIRONMENT = {"python": "3.11", "libraries": {"onnx": "1.2.3"}}


def key(*parts: Any) -> str:
    return digest_json(list(parts))


def write_model(folder: Path, content: bytes, **external: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(content)
    for name, data in external.items():
        (folder / f"{name}.data").write_bytes(data)
    return folder


def put(store: Store, content: bytes, **external: bytes) -> str:
    folder = store.home / "made" / hashlib.sha256(content).hexdigest()[:16]
    return store.artifacts.put(write_model(folder, content, **external), consume=True)


def pass_run(given: str, made: str | None, name: str = "simplify", **changes: Any) -> PassRunRecord:
    fields: dict[str, Any] = {
        "key": key(name, given, made),
        "pass_name": name,
        "params": {"level": 2},
        "input": Candidate(given),
        "outcome": Outcome.OK if made else Outcome.FAILED,
        "output": Candidate(made) if made else None,
        "seconds": 0.5,
        "environment": ENVIRONMENT,
    }
    return PassRunRecord(**{**fields, **changes})


def evaluation(artifact: str, value: float = 3.0, **changes: Any) -> EvaluationRecord:
    fields: dict[str, Any] = {
        "key": key("evaluation", artifact),
        "candidate": Candidate(artifact),
        "meter": "size",
        "outcome": Outcome.OK,
        "metrics": {"size": Estimate.exact(value)},
        "source_metrics": {"size": Estimate.exact(2 * value)},
        "ratios": {"size": Estimate(0.5, 0.4, 0.6)},
        "environment": ENVIRONMENT,
    }
    return EvaluationRecord(**{**fields, **changes})


def start_run(store: Store, content: bytes = b"source", **changes: Any) -> RunRecord:
    source = put(store, content)
    store.models.add(ModelRecord(source, "net"))
    fields: dict[str, Any] = {"id": "", "name": "net cpu", "identity": key("identity", source), "model": source}
    return store.runs.create(RunRecord(**{**fields, **changes}))


def release(zoo: str, model: str) -> Release:
    """A release without figures."""
    return Release(zoo, 1, SweepEntry(model, "ok"), places=("here",))


def finish_all(store: Store, *records: PassRunRecord) -> None:
    """Store the results of several pass runs."""
    for record in records:
        assert store.results.finish_pass_run(record)


def trial(run: str, number: int, **changes: object) -> Trial:
    """A trial to do."""
    return dataclasses.replace(Trial(run, number, CHAIN, {"simplify": {"level": number}}), **changes)  # type: ignore[arg-type]


def finished_run(store: Store, content: bytes = b"source", *, end: bool = True) -> str:
    """A run of one trial over two passes, `content` -> middle -> last."""
    run = start_run(store, content)
    middle, last = put(store, content + b" middle"), put(store, content + b" last")
    steps = [pass_run(run.model, middle, run=run.id), pass_run(middle, last, "float16", run=run.id)]
    judged = evaluation(last, run=run.id)
    finish_all(store, *steps)
    store.results.finish_evaluation(judged)
    trial_end = Trial(
        run.id,
        0,
        CHAIN,
        {"a": {"x": 1}},
        outcome=Outcome.OK,
        candidate=Candidate(last),
        metrics=judged.metrics,
        pass_runs=tuple(step.key for step in steps),
        evaluations=(judged.key,),
    )
    store.trials.finish(trial_end)
    if end:
        store.runs.finish(run.id, "finished", {"best": {"artifact": last}})
    return run.id


def age(store: Store, seconds: float = 7200.0) -> None:
    """Make all artifacts look unused for that long."""
    for path in store.files.root.rglob("*"):
        then = path.stat().st_mtime - seconds
        os.utime(path, (then, then))
    store.files._touched.clear()


def digests(store: Store) -> set[str]:
    """The artifacts that are present."""
    return {a.digest for a in store.artifacts.all()}


def steps_of(store: Store, run: str) -> list[PassRunRecord]:
    """The pass runs of a run's first trial, in order."""
    keys = store.trials.get(run, 0).pass_runs
    records = store.results.pass_runs(keys)
    return [records[key] for key in keys]
