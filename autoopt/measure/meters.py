"""What a meter is, and the list of them. Light: nothing here reads a model."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from autoopt.errors import InputError
from autoopt.metrics import METRICS

TOP_N: Final = re.compile(r"top[1-9]\d*_accuracy")
Needs: TypeAlias = Literal["nothing", "data", "labels", "source"]
"""`data`: uses it where there is some and makes inputs up otherwise; `labels`: cannot do without labelled data;
`source`: compares with the source model, on data or made-up inputs."""


@dataclass(frozen=True)
class Meter:
    """A worker function that measures some metrics of a candidate, and of the source model beside it.

    The function takes `{"candidate", "source", "metrics", "data", "target", "settings"}` and returns
    `{"metrics": {name: {"value", "low", "high"}}, "source_metrics", "ratios", "details"}`; a candidate that is the
    source itself gives the baseline. `version` is raised whenever its results change their meaning.
    """

    name: str
    metrics: tuple[str, ...]
    function: str
    exclusive: bool = False
    """Runs alone on the machine, behind the measurement gate."""
    needs: Needs = "nothing"
    version: int = 1


def _of_kind(kind: str) -> tuple[str, ...]:
    return tuple(m.name for m in METRICS.values() if m.kind == kind)


METERS: Final[tuple[Meter, ...]] = (
    Meter("size", _of_kind("size"), "autoopt.measure.worker:size"),
    Meter("fidelity", _of_kind("fidelity"), "autoopt.measure.worker:fidelity", needs="source", version=2),
    Meter("task", _of_kind("task"), "autoopt.measure.worker:task", needs="labels", version=2),
    Meter("latency", _of_kind("latency"), "autoopt.measure.worker:latency", exclusive=True, needs="data", version=3),
    Meter("memory", _of_kind("memory"), "autoopt.measure.worker:memory", exclusive=True, needs="data", version=2),
)
"""Cheap ones first: the order in which a trial goes through them."""

CUSTOM: Final = Meter("custom", (), "autoopt.measure.worker:custom", needs="data")
"""Metrics of a user script; `meters_for` fills in their names."""


def meters_for(metrics: Iterable[str], custom: Collection[str] = ()) -> tuple[Meter, ...]:
    """The meters that measure those metrics, cheap ones first; `custom` are the names a user script defines.

    Raises:
        InputError: a metric that nothing measures.
    """
    wanted = tuple(dict.fromkeys(metrics))
    own = tuple(name for name in wanted if name in custom)
    rest = [name for name in wanted if name not in own]
    found = [
        replace(m, metrics=tuple(dict.fromkeys((*m.metrics, *(n for n in rest if _measures(m, n))))))
        for m in METERS
        if any(_measures(m, name) for name in rest)
    ]
    for name in wanted:
        if name not in own and not any(_measures(m, name) for m in METERS):
            raise InputError(f"nothing measures {name!r}")
    if own:
        found.insert(sum(not m.exclusive for m in found), replace(CUSTOM, metrics=own))
    return tuple(found)


def _measures(meter: Meter, name: str) -> bool:
    return name in meter.metrics or (meter.name == "task" and TOP_N.fullmatch(name) is not None)
