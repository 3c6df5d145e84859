"""The content of a run without its circumstances, for comparing an interrupted run with an uninterrupted one."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

from autoopt.metrics import METRICS, Estimate
from autoopt.results import Trial
from autoopt.store import Store


def canonical(store: Store, run: str, *, timed: bool = True) -> dict[str, object]:
    """All of a run that does not depend on when, where and in how many attempts it was done, as JSON.

    Args:
        store: The store that has the run.
        run: Its id, the beginning of it, or `latest`.
        timed: Include the values of times and memory, which differ from one measurement to the next.
    """
    record = store.runs.get(run)
    trials = store.trials.all(record.id)
    pass_runs: dict[str, object] = {}
    artifacts = {record.model}
    keys = set(chain.from_iterable(trial.pass_runs for trial in trials))
    for key, work in store.results.pass_runs(keys).items():
        artifacts |= {work.input.artifact, (work.output or work.input).artifact}
        output = work.output and work.output.key
        pass_runs[key] = [work.pass_name, dict(work.params), work.input.key, str(work.outcome), output]
    evaluations: dict[str, object] = {}
    keys = set(chain.from_iterable(trial.evaluations for trial in trials))
    for key, judged in store.results.evaluations(keys).items():
        metrics = _values(judged.metrics, timed)
        evaluations[key] = [judged.meter, judged.candidate.key, str(judged.outcome), metrics]
    return {
        "identity": record.identity,
        "status": record.status,
        "model": record.model,
        "plan": record.plan,
        "trials": [_trial(trial, timed) for trial in trials],
        "pass_runs": dict(sorted(pass_runs.items())),
        "evaluations": dict(sorted(evaluations.items())),
        "artifacts": {digest: dict(store.artifacts.get(digest).files) for digest in sorted(artifacts)},
    }


def _trial(trial: Trial, timed: bool) -> dict[str, object]:
    return {
        "number": trial.number,
        "chain": trial.chain_id,
        "point": trial.point,
        "status": trial.status,
        "outcome": trial.outcome,
        "candidate": trial.candidate and trial.candidate.key,
        "metrics": _values(trial.metrics, timed),
        "pass_runs": list(trial.pass_runs),
        "evaluations": list(trial.evaluations),
    }


def _values(estimates: Mapping[str, Estimate], timed: bool) -> dict[str, list[float] | None]:
    values: dict[str, list[float] | None] = {}
    for name, estimate in sorted(estimates.items()):
        metric = METRICS.get(name)
        varies = metric is not None and metric.kind in ("latency", "memory")
        values[name] = [estimate.value, estimate.low, estimate.high] if timed or not varies else None
    return values
