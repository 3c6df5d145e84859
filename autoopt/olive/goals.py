"""Olive's evaluators as `objectives:` and `constraints:`, and its search strategy as `search:`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from autoopt.json_codec import JsonValue
from autoopt.metrics import Direction, get_metric
from autoopt.olive.config import OliveConfig, Remarks, Section, flat, items, section
from autoopt.spec.source import Place

_METRICS: Final = {
    ("accuracy", "accuracy_score"): "accuracy",
    ("accuracy", "accuracy"): "accuracy",
    ("accuracy", "f1_score"): "f1",
    ("accuracy", "f1"): "f1",
    ("accuracy", "auroc"): "auc",
    ("accuracy", "auc"): "auc",
    ("accuracy", "perplexity"): "perplexity",
    ("accuracy", "wer"): "wer",
    ("accuracy", "exact_match"): "exact_match",
    ("latency", "avg"): "latency_mean",
    ("latency", "p50"): "latency_p50",
    ("latency", "p90"): "latency_p90",
    ("latency", "p99"): "latency_p99",
    ("throughput", "avg"): "throughput",
    ("size_on_disk", "bytes"): "size",
}
"""(type, sub-type) -> autoopt's metric."""
_ALWAYS_REPORTED: Final = ("latency", "throughput")
_PLACE: Final[Place] = ("search_strategy",)
_SAMPLERS: Final[dict[str, dict[str, JsonValue]]] = {
    "tpe": {"sampler": "tpe"},
    "random": {"strategy": "per-chain", "sampler": "random"},
    "sequential": {"strategy": "per-chain", "sampler": "exhaustive"},
    "exhaustive": {"strategy": "per-chain", "sampler": "exhaustive"},
}
_TRIALS: Final = ("max_samples", "num_samples", "max_iter")
_NOT_NEEDED: Final = {
    "output_model_num": "every model stays in the store, and 'autoopt export RUN TRIAL' writes any of them",
    "include_pass_params": "the parameters that a pass does not set are searched as 'search: all' of its node says",
    "multivariate": "the sampler decides itself",
    "group": "the sampler decides itself",
}


@dataclass(frozen=True)
class _Goal:
    """A sub-type of a metric with its place in the ranking (0: none) and its limit."""

    metric: str
    priority: int
    limit: Section
    place: Place


def goals(config: OliveConfig, remarks: Remarks) -> dict[str, JsonValue]:
    """Return `objectives` and `constraints`, if the evaluator of the run has any."""
    place, evaluator = config.evaluator()
    if evaluator.get("type"):
        what = f"no evaluator {evaluator['type']!r}"
        remarks.add(place, what, "set objectives and constraints in dag.yaml; docs/quality.md lists the metrics")
        return {}
    constraints: list[JsonValue] = []
    ranked: list[_Goal] = []
    for goal in sorted(_read(place, evaluator, remarks), key=lambda goal: goal.priority or math.inf):
        constraint = _constraint(goal, remarks)
        if constraint:
            constraints.append({"metric": goal.metric, **constraint})
        # A goal that asks for an improvement is an objective here, though Olive does not rank by it.
        if goal.priority > 0 or "improvement" in str(goal.limit.get("type")):
            ranked.append(goal)
    result: dict[str, JsonValue] = {}
    # Two of Olive's metrics may be the same here, such as the latencies with two execution providers.
    objectives: list[JsonValue] = list(dict.fromkeys(goal.metric for goal in _objectives(ranked, remarks)))
    if objectives:
        result["objectives"] = objectives
    if constraints:
        result["constraints"] = constraints
    return result


def _objectives(ranked: list[_Goal], remarks: Remarks) -> list[_Goal]:
    """The metrics to rank by, without those that only have a limit on their loss."""
    free = [goal for goal in ranked if "degradation" not in str(goal.limit.get("type"))]
    if not free:
        return ranked
    for goal in ranked:
        if goal not in free:
            what = f"{goal.metric} becomes a constraint only; {free[0].metric} ranks the candidates that meet it"
            remarks.add(goal.place, what, "to rank by it first, as Olive does, add it to objectives")
    return free


def _read(place: Place, evaluator: Section, remarks: Remarks) -> Iterator[_Goal]:
    for index, item in enumerate(items(evaluator.get("metrics"))):
        metric = flat(item)
        kind = str(metric.get("type"))
        here = (*place, "metrics", index)
        if kind == "custom":
            name = str(metric.get("name"))
            remedy = "write the function as a metric of a user script, see docs/quality.md"
            remarks.add(here, f"the code of the custom metric {name!r} is not converted", remedy)
            continue
        sub_types = metric.get("sub_types", metric.get("sub_type"))
        for sub_index, sub_type in enumerate(items(sub_types)):
            fields = section(sub_type) or {"name": sub_type, "goal": metric.get("goal"), "priority": 1}
            goal = _goal(kind, fields, (*here, "sub_types", sub_index), remarks)
            if goal:
                yield goal


def _goal(kind: str, fields: Section, place: Place, remarks: Remarks) -> _Goal | None:
    name = str(fields.get("name"))
    metric = _METRICS.get((kind, name))
    priority = fields.get("priority")
    limit = section(fields.get("goal"))
    if not isinstance(priority, int):
        priority = 0
    if metric is None:
        if kind not in _ALWAYS_REPORTED or priority > 0 or limit:
            remarks.add(place, f"no metric {kind} {name}", "docs/quality.md lists the metrics")
        return None
    return _Goal(metric, max(priority, 0), limit, place)


def _constraint(goal: _Goal, remarks: Remarks) -> dict[str, JsonValue]:
    """The bound that a goal sets; empty if it sets none."""
    value = goal.limit.get("value")
    if not isinstance(value, int | float):
        return {}
    kind = str(goal.limit.get("type"))
    direction: Direction = get_metric(goal.metric).direction
    maximize = direction == "maximize"
    if kind == "threshold":
        return {"min" if maximize else "max": value}
    if kind == "max-degradation":
        return {"max_drop": value}
    if kind == "percent-max-degradation":
        return _ratio(maximize, -value)
    if kind == "percent-min-improvement":
        return _ratio(maximize, value)
    remarks.add(goal.place, f"no goal {kind!r}", "use min_ratio or max_ratio, which are candidate / source")
    return {}


def _ratio(maximize: bool, percent: float) -> dict[str, JsonValue]:
    """The bound for a metric that becomes better by at least `percent`; a negative number limits how much worse."""
    if maximize:
        return {"min_ratio": round(max(1 + percent / 100, 0.0), 6)}
    return {"max_ratio": round(max(1 - percent / 100, 0.0), 6)}


def search_settings(config: OliveConfig, remarks: Remarks) -> dict[str, JsonValue]:
    """Return the `search:` section; empty if nothing is searched."""
    strategy = config.search
    if strategy is None:
        return {}
    sampler = str(strategy.get("sampler") or strategy.get("search_algorithm") or "sequential").lower()
    if sampler not in _SAMPLERS:
        remarks.add(_PLACE, f"no sampler {sampler!r}", "autoopt's default searches; see docs/searching.md")
    settings = dict(_SAMPLERS.get(sampler, {}))
    order = str(strategy.get("execution_order") or "joint")
    if order != "joint":
        settings["strategy"] = "per-chain"
        settings["order"] = order
    settings.update(_budget(strategy))
    if strategy.get("seed") is not None:
        settings["seed"] = strategy["seed"]
    if strategy.get("stop_when_goals_met"):
        settings["stop_when_goals_met"] = True
    for name, remedy in _NOT_NEEDED.items():
        if name in strategy:
            remarks.add((*_PLACE, name), "is not needed", remedy)
    return settings


def _budget(strategy: Section) -> dict[str, JsonValue]:
    budget: dict[str, JsonValue] = {}
    counts = [value for name in _TRIALS if isinstance(value := strategy.get(name), int) and value > 0]
    if counts:
        budget["trials"] = min(counts)
    seconds = strategy.get("max_time")
    if isinstance(seconds, int | float) and seconds > 0:
        budget["minutes"] = round(seconds / 60, 3)
    return budget
