"""A run as it would be however it was carried out: for comparing an interrupted one with an uninterrupted one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autoopt.metrics import METRICS, Estimate
from autoopt.store.contracts import Store
from autoopt.store.records import TrialRecord


def canonical(store: Store, run: str, *, timed: bool = True) -> dict[str, Any]:
    """Everything of a run that does not depend on when, where and in how many attempts it was done, as JSON.

    Args:
        timed: whether the values of times and of memory belong to it, which differ from one measurement to the next.
    """
    record = store.runs.get(run)
    trials = store.trials.all(record.id)
    passes = store.results.pass_runs(key for t in trials for key in t.pass_runs)
    judged = store.results.evaluations(key for t in trials for key in t.evaluations)
    made = {c.artifact for p in passes.values() for c in (p.input, p.output) if c} | {record.model}
    return {
        "identity": record.identity,
        "status": record.status,
        "model": record.model,
        "plan": record.plan,
        "chains": [[c.id, c.name, c.points] for c in store.runs.chains(record.id)],
        "trials": [_trial(t, timed) for t in trials],
        "pass_runs": {
            key: [p.pass_name, dict(p.params), p.input.key, str(p.outcome), p.output.key if p.output else None]
            for key, p in sorted(passes.items())
        },
        "evaluations": {
            key: [e.meter, e.candidate.key, str(e.outcome), _values(e.metrics, timed)]
            for key, e in sorted(judged.items())
        },
        "artifacts": {digest: dict(store.artifacts.get(digest).files) for digest in sorted(made)},
    }


def _trial(trial: TrialRecord, timed: bool) -> dict[str, Any]:
    return {
        "number": trial.number,
        "chain": trial.chain,
        "point": trial.point,
        "status": trial.status,
        "outcome": None if trial.outcome is None else str(trial.outcome),
        "candidate": trial.candidate.key if trial.candidate else None,
        "metrics": _values(trial.metrics, timed),
        "pass_runs": list(trial.pass_runs),
        "evaluations": list(trial.evaluations),
    }


def _values(estimates: Mapping[str, Estimate], timed: bool) -> dict[str, list[float] | None]:
    varying = set() if timed else {m.name for m in METRICS.values() if m.kind in ("latency", "memory")}
    return {n: None if n in varying else [e.value, e.low, e.high] for n, e in sorted(estimates.items())}
