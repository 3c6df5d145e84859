"""The recorded tables as a run searches them: from the first points of a proposed graph."""

from __future__ import annotations

from typing import Final

from benchmarks.search.first_points import as_proposed
from benchmarks.search.report import LEFT_OUT, recorded, recorded_later
from benchmarks.search.table import Table

TIGHTENED: Final = ("cifar10_resnet8", "dtln_stage1")
"""Tables with candidates of different quality, all of which meet the limit that they were recorded with."""
BROKEN: Final = 0.5
"""Share of the points that break the limit of a tightened table, about: points of the same quality stay together."""


def proposed() -> dict[str, list[Table]]:
    """The tables by name; those of `TIGHTENED` also with a limit on quality that binds, last those left out."""
    tables: dict[str, list[Table]] = {}
    for name, (table,) in recorded().items():
        tables[name] = [as_proposed(table)]
        if name in TIGHTENED:
            tight = tables[name][0].tightened(BROKEN)
            tables[tight.name] = [tight]
    for table in recorded_later():
        tables[LEFT_OUT + table.name] = [as_proposed(table)]
    return tables
