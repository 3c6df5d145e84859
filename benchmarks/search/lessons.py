"""Recorded tables as lessons: facts about models, configurations, ratios and versions."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeAlias

from autoopt.metrics import MEDIAN_LATENCY
from autoopt.model.inspection import Inspection
from autoopt.problem.best_candidate import Machine, RunGoal
from autoopt.problem.first_points import SILENT
from autoopt.problem.lessons import BUILT_IN, MAX_CONFIGURATIONS, Configuration, Lesson, Tried
from autoopt.search import ChainSpace
from autoopt.space import Point
from benchmarks.search.table import Row, Table

Task: TypeAlias = tuple[ChainSpace, Point]
"""A point of a chain."""


def lesson_of(table: Table) -> Lesson:
    """The lesson of a table, with what planning reads of the model."""
    model = table.inspection
    inspection = Inspection(
        inputs=(),
        outputs=(),
        opsets={},
        ir_version=0,
        op_counts=dict(model.op_counts),
        parameters=model.parameters,
        bytes=model.bytes,
        layer_parameters=dict(model.layer_parameters),
        layer_work=dict(model.layer_work),
    )
    return Lesson(
        model=table.name,
        inspection=inspection,
        machine=Machine(table.about["cpu"], table.about["runtime"]),
        isa=tuple(table.about.get("isa", ())),
        goal=RunGoal(MEDIAN_LATENCY, "cpu", "CPUExecutionProvider"),
        tried=_tried(distinct(table)),
        origin=BUILT_IN,
    )


def configuration_of(task: Task) -> Configuration:
    """The same as a configuration, with the values that the table fixes."""
    chain, point = task
    configuration: dict[str, dict[str, object]] = {}
    for node, name in chain.passes:
        if name not in SILENT:
            configuration[name] = {**chain.space.nodes[node].fixed, **point.get(node, {})}
    return configuration  # type: ignore[return-value]


def _tried(rows: Sequence[tuple[Task, Row]]) -> tuple[Tried, ...]:
    measured: list[Tried] = []
    for task, row in rows:
        passes = configuration_of(task)
        if passes:
            measured.append(Tried(passes, round(row.value, 4) if row.latency else None, not row.feasible))
    return tuple(measured[:MAX_CONFIGURATIONS])


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
