"""The list of runs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from autoopt.report.document import RunDocument
from autoopt.report.run import chain_text
from autoopt.report.table import Table
from autoopt.report.words import counts_text, ratio_text, short


def runs_table(runs: Sequence[Mapping[str, Any]]) -> Table:
    """One row a run: `{"run", "dag", "model", "status", "created", "result"}`, the result being the run's document."""
    return Table(
        columns=("run", "began", "model", "dag", "status", "trials", "latency", "best chain"),
        rows=tuple(_row(run) for run in runs),
        right=frozenset({6}),
    )


def _row(run: Mapping[str, Any]) -> tuple[str, ...]:
    document = RunDocument.from_json(run.get("result") or {})
    best = document.best
    ratio = best.ratios.get("latency_p50") if best else None
    return (
        short(str(run.get("run", ""))),
        time.strftime("%Y-%m-%d %H:%M", time.localtime(float(run.get("created") or 0))),
        str(run.get("model", "")),
        str(run.get("dag", "")),
        str(run.get("status", "")),
        counts_text(document.trials) if document.trials else "-",
        ratio_text(ratio) if ratio else "-",
        chain_text(best) if best else "-",
    )
