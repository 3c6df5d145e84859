"""One run's document, as `autoopt run --json` prints it."""

from typing import Any

import pytest

from autoopt.metrics import Estimate
from autoopt.outcome import Outcome
from autoopt.results import ModelResult, RunResult, Trial


@pytest.fixture
def data() -> dict[str, Any]:
    best = {
        "artifact": "a" * 64,
        "path": "/store/aa/model.onnx",
        "session_options": {},
        "chain": "fold -> static",
        "passes": ["fold", "static"],
        "params": {"fold": {}, "static": {"per_channel": True, "weight_type": "QInt8"}},
        "point": {"static": {"per_channel": True}},
        "metrics": {"latency_p50": 0.05, "latency_p90": 0.06, "size": 123456, "accuracy": 0.995},
        "intervals": {"accuracy": {"value": 0.995, "low": 0.985, "high": 0.998}},
        "ratios": {
            "latency_p50": {"value": 0.3, "low": 0.29, "high": 0.31},
            "size": {"value": 0.302, "low": 0.302, "high": 0.302},
        },
        "flags": [],
    }
    small = {
        **best,
        "artifact": "b" * 64,
        "chain": "fold -> weights",
        "point": {},
        "metrics": {**best["metrics"], "size": 80000},
        "ratios": {
            "latency_p50": {"value": 0.96, "low": 0.93, "high": 1.0},
            "size": {"value": 0.196, "low": 0.196, "high": 0.196},
        },
        "flags": ["accuracy is not certain"],
    }
    return {
        "run": "0123456789abcdef",
        "status": "finished",
        "baseline": {"metrics": {"latency_p50": 0.178, "latency_p90": 0.2, "size": 408782, "accuracy": 0.995}},
        "best": best,
        "pareto": [best, small],
        "trials": {"total": 3, "ok": 2, "refused": 1, "failed": 0},
        "pass_runs": {"executed": 4, "reused": 1},
        "evaluations": {"executed": 6, "reused": 0},
        "seconds": {"total": 41.25, "search": 30.0, "prefect start": 9.8},
        "stopped": "16 trials",
        "notes": ["no quality constraint given"],
    }


@pytest.fixture
def result(data: dict[str, Any]) -> RunResult:
    return RunResult.from_json(data)


@pytest.fixture
def trials(result: RunResult) -> list[Trial]:
    best, small = result.front
    refused = Trial("run", 0, "c0", {}, "fold", outcome=Outcome.REFUSED, message="no <Conv> & co")
    return [refused, trial_of(1, small, violation=0.02), trial_of(2, best, violation=-0.01, seconds=1.5)]


def trial_of(number: int, model: ModelResult, **values: Any) -> Trial:
    metrics = {name: Estimate.exact(value) for name, value in model.metrics.items()}
    return Trial(
        "run",
        number,
        "c1",
        model.point,
        model.chain,
        outcome=Outcome.OK,
        metrics=metrics,
        ratios=model.ratios,
        **values,
    )
