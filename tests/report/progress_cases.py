"""Trials for the tests of progress displays."""

from __future__ import annotations

from typing import Any

from autoopt.metrics import Estimate
from autoopt.outcome import Outcome
from autoopt.results import Trial

FASTER = {"latency_p50": Estimate(0.5, 0.4, 0.6), "size": Estimate.exact(0.25)}


def trial(number: int = 3, chain: str = "a -> b", **values: Any) -> Trial:
    made = {"point": {"b": {"x": 1}}, "outcome": Outcome.OK, "executed": 1, **values}
    return Trial("run", number, "c", chain=chain, **made)


def latency(ratio: float) -> dict[str, Estimate]:
    return {"latency_p50": Estimate(ratio, ratio * 0.95, ratio * 1.05)}
