"""Recorded tables as a file of knowledge: facts, configurations, ratios and versions, no models, data or paths."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

from autoopt.engine.planning.lessons import LATENCY
from autoopt.engine.work.environment import library_version
from autoopt.model.candidate import digest_json
from autoopt.results.knowledge import (
    MAX_EFFECTS,
    Configuration,
    GoalFacts,
    Knowledge,
    Lesson,
    MachineFacts,
    ModelFacts,
    PassEffect,
    Spread,
)
from autoopt.search.surrogates.effects import Factor, estimated_effects
from benchmarks.search.multitask import SILENT, Task, distinct
from benchmarks.search.table import Row, Table

LATENCY_NAME = "latency_p50"


def knowledge_of(tables: Sequence[Table]) -> Knowledge:
    """One lesson for each table."""
    return Knowledge.of(tuple(map(_lesson, tables)), library_version("autoopt"))


def _lesson(table: Table) -> Lesson:
    model = table.inspection
    rows = distinct(table)
    return Lesson(
        id=digest_json({"table": table.name})[:12],
        model=ModelFacts(
            op_counts=dict(model.op_counts),
            layer_parameters=dict(model.layer_parameters),
            parameters=model.parameters,
            bytes=model.bytes,
            opset=model.opsets.get("", 0),
        ),
        machine=MachineFacts(cpu=table.about["cpu"], runtime=table.about["runtime"]),
        goal=GoalFacts(metric=LATENCY_NAME, device="cpu", execution_provider="CPUExecutionProvider", threads=1),
        trials=len(rows),
        best=_best(rows),
        effects=_effects(rows),
    )


def factors_of(task: Task) -> list[Factor]:
    """The passes of a point, without those that only prepare others, and their values."""
    chain, point = task
    factors: list[Factor] = []
    for node, name in chain.passes:
        if name not in SILENT:
            factors.append(Factor(name))
            factors += [Factor(name, key, json.dumps(value)) for key, value in point.get(node, {}).items()]
    return factors


def _best(rows: Sequence[tuple[Task, Row]]) -> Configuration | None:
    """The fastest candidate that meets the limit; None if that is the source model."""
    (chain, point), row = min(rows, key=lambda pair: pair[1].value if pair[1].feasible else math.inf)
    if not row.feasible or row.value >= 1:
        return None
    names = dict(chain.passes)
    return Configuration(
        passes=tuple(name for name in names.values() if name not in SILENT),
        values={names[node]: dict(values) for node, values in point.items() if values},
        ratios={LATENCY_NAME: round(row.value, 5)},
    )


def _effects(rows: Sequence[tuple[Task, Row]]) -> tuple[PassEffect, ...]:
    """The effects of all passes and values, those with the most candidates first."""
    measured = [(factors_of(task), math.log(row.value)) for task, row in rows if row.latency]
    estimates = estimated_effects(measured, LATENCY)
    by_factor: dict[Factor, list[Row]] = {}
    for task, row in rows:
        for factor in factors_of(task):
            by_factor.setdefault(factor, []).append(row)
    effects: list[PassEffect] = []
    for factor, mine in by_factor.items():
        estimate = estimates.get(factor)
        spread = estimate and Spread(mean=round(estimate.mean, 4), deviation=round(estimate.deviation, 4))
        effects.append(
            PassEffect(
                pass_name=factor.pass_name,
                parameter=factor.parameter or None,
                value=json.loads(factor.value or "null"),
                latency=spread,
                trials=sum(bool(row.latency) for row in mine),
                rejected=sum(not row.feasible for row in mine),
            )
        )
    effects.sort(key=lambda effect: -effect.trials)
    return tuple(effects[:MAX_EFFECTS])
