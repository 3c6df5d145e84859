"""Recorded tables as a file of knowledge: facts, configurations, ratios and versions, no models, data or paths."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Sequence
from typing import TypeAlias

from autoopt.engine.planning.first_points import SILENT, Configuration
from autoopt.engine.planning.lessons import LATENCY
from autoopt.engine.work.environment import library_version
from autoopt.metrics import MEDIAN_LATENCY
from autoopt.model.candidate import digest_json
from autoopt.results.knowledge import (
    MAX_CONFIGURATIONS,
    MAX_EFFECTS,
    GoalFacts,
    Knowledge,
    Lesson,
    MachineFacts,
    MeasuredConfiguration,
    ModelFacts,
    PassEffect,
    Spread,
)
from autoopt.results.knowledge import Configuration as BestConfiguration
from autoopt.search import ChainSpace
from autoopt.search.surrogates.effects import Factor, estimated_effects
from autoopt.space import Point
from benchmarks.search.table import Row, Table

Task: TypeAlias = tuple[ChainSpace, Point]
"""A point of a chain."""


def knowledge_of(tables: Sequence[Table]) -> Knowledge:
    """One lesson for each table."""
    return Knowledge.of(tuple(map(lesson_of, tables)), library_version("autoopt"))


def lesson_of(table: Table) -> Lesson:
    """The lesson of a table."""
    model = table.inspection
    rows = distinct(table)
    return Lesson(
        id=digest_json({"table": table.name})[:12],
        model=ModelFacts(
            op_counts=dict(model.op_counts),
            layer_parameters=dict(model.layer_parameters),
            layer_work=dict(model.layer_work),
            parameters=model.parameters,
            bytes=model.bytes,
            opset=model.opsets.get("", 0),
        ),
        machine=MachineFacts(cpu=table.about["cpu"], isa=table.about.get("isa", ()), runtime=table.about["runtime"]),
        goal=GoalFacts(metric=MEDIAN_LATENCY, device="cpu", execution_provider="CPUExecutionProvider", threads=1),
        trials=len(rows),
        best=_best(rows),
        effects=_effects(rows),
        configurations=_configurations(rows),
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


def configuration_of(task: Task) -> Configuration:
    """The same as a configuration, with the values that the table fixes."""
    chain, point = task
    configuration: dict[str, dict[str, object]] = {}
    for node, name in chain.passes:
        if name not in SILENT:
            configuration[name] = {**chain.space.nodes[node].fixed, **point.get(node, {})}
    return configuration  # type: ignore[return-value]


def _configurations(rows: Sequence[tuple[Task, Row]]) -> tuple[MeasuredConfiguration, ...]:
    measured: list[MeasuredConfiguration] = []
    for task, row in rows:
        passes = configuration_of(task)
        if passes:
            ratio = round(row.value, 4) if row.latency else None
            measured.append(MeasuredConfiguration(passes=passes, ratio=ratio, rejected=not row.feasible))
    return tuple(measured[:MAX_CONFIGURATIONS])


def _best(rows: Sequence[tuple[Task, Row]]) -> BestConfiguration | None:
    """The fastest candidate that meets the limit; None if that is the source model."""
    (chain, point), row = min(rows, key=lambda pair: pair[1].value if pair[1].feasible else math.inf)
    if not row.feasible or row.value >= 1:
        return None
    names = dict(chain.passes)
    return BestConfiguration(
        passes=tuple(name for name in names.values() if name not in SILENT),
        values={names[node]: dict(values) for node, values in point.items() if values},
        ratios={MEDIAN_LATENCY: round(row.value, 5)},
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


def distinct(table: Table) -> list[tuple[Task, Row]]:
    """The points of a table, each candidate once."""
    rows: dict[str, tuple[Task, Row]] = {}
    for chain, outcomes in zip(table.chains, table.rows, strict=True):
        for number, (point, row) in enumerate(zip(chain.space.iterate(), outcomes, strict=True)):
            rows.setdefault(row.artifact or f"{chain.id} {number}", ((chain, point), row))
    return list(rows.values())


def relatives(table: Table, tables: Collection[Table]) -> set[str]:
    """Names of the tables of the same model or of its family, which share the first word of their names."""
    family = table.name.partition("_")[0]
    return {other.name for other in tables if other.name.partition("_")[0] == family}
