"""How a model was measured: a line or two, and tables of what was measured besides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autoopt.errors import one_line
from autoopt.metrics import known_metric
from autoopt.report.document import SOURCE, Model, estimate
from autoopt.report.table import Table
from autoopt.report.words import metric_text, ratio_text

STOPPED = {"narrow": "narrow", "worse": "surely slower", "time": "time was up", "max repeats": "pairs were enough"}
"""Why a measurement ended, after `stopped when`."""


def measured_lines(model: Model | None) -> list[str]:
    """How the model was measured, and which of several outputs is the farthest from the source's; empty for the source
    itself and where nothing is known."""
    if model is None or model.chain == SOURCE:
        return []
    lines = [_course(model.measured)] if model.measured.get("rounds") else []
    outputs = model.measured.get("outputs") or {}
    worst = _worst(outputs)
    if worst is not None and len(outputs) > 1:
        name, metric, value = worst
        lines.append(f"worst of {len(outputs)} outputs: {one_line(name)}, {metric} {metric_text(metric, value)}")
    return lines


def _course(measured: Mapping[str, Any]) -> str:
    rounds, disturbed = measured["rounds"], measured.get("disturbed_rounds", 0)
    parts = ["once" if rounds == 1 else f"{rounds} rounds"]
    if disturbed:
        parts[0] += " on a disturbed machine" if rounds == 1 else f" ({disturbed} on a disturbed machine)"
    parts.append(f"{measured.get('pairs', 0)} pairs of blocks")
    batch, threads = measured.get("batch_size", 1), measured.get("threads")
    parts += [f"batches of {batch}"] if batch != 1 else []
    parts += [f"{threads} thread{'' if threads == 1 else 's'}"] if threads else []
    cores = measured.get("affinity") or []
    if len(cores) < measured.get("cores", 0):
        parts.append(f"on core{'' if len(cores) == 1 else 's'} {', '.join(map(str, cores))}")
    stopped = measured.get("stopped") or {}
    reasons = [
        STOPPED.get(why, one_line(str(why))) + (f" ({count})" if len(stopped) > 1 else "")
        for why, count in stopped.items()
    ]
    return f"measured: {', '.join(parts)}" + (f"; stopped when {', '.join(reasons)}" if reasons else "")


def _worst(outputs: Mapping[str, Mapping[str, Any]]) -> tuple[str, str, float] | None:
    """Name of the worst output by the first metric that they have, that metric, and its value."""
    metric = next((metric for found in outputs.values() for metric in found), None)
    known = known_metric(metric) if metric else None
    if metric is None or known is None:
        return None
    values = {name: estimate(found[metric]).value for name, found in outputs.items() if metric in found}
    pick = min if known.direction == "maximize" else max
    name = pick(values, key=lambda name: values[name])
    return name, metric, values[name]


def measured_tables(model: Model | None, *, outputs: bool = False) -> list[Table]:
    """Tables of the throughput and of the profiles where they were asked for; of the outputs on demand, where there are
    several."""
    if model is None:
        return []
    tables = [_throughput(model), _profiles(model)]
    if outputs and len(model.measured.get("outputs") or ()) > 1:
        tables.append(_outputs(model))
    return [table for table in tables if table.rows]


def _throughput(model: Model) -> Table:
    given = model.measured.get("throughput") or ()
    rows = tuple(
        (
            str(row.get("profile", "-")),
            str(row["batch_size"]),
            str(row["concurrency"]),
            *(_value("throughput", row.get(side)) for side in ("source", "candidate")),
            f"refused: {row['refused']}" if "refused" in row else _ratio(row.get("ratio")),
        )
        for row in given
    )
    columns = ("profile", "batch size", "at the same time", "source", _label(model), "ratio")
    return Table(columns, rows, title="throughput", right=frozenset(range(1, 6)))


def _profiles(model: Model) -> Table:
    given = model.measured.get("profiles") or {}
    metrics = [m for m in ("latency_p50", "latency_p90") if any(m in found["metrics"] for found in given.values())]
    rows = tuple(
        (
            name,
            *(
                cell
                for metric in metrics
                for cell in (_value(metric, found["metrics"].get(metric)), _ratio(found["ratios"].get(metric)))
            ),
        )
        for name, found in given.items()
    )
    columns = ("profile", *(cell for metric in metrics for cell in (metric, "ratio")))
    return Table(columns, rows, title=f"latency of {_label(model)} by profile", right=frozenset(range(1, len(columns))))


def _outputs(model: Model) -> Table:
    given = model.measured.get("outputs") or {}
    metrics = list(dict.fromkeys(metric for found in given.values() for metric in found))
    rows = tuple((name, *(_value(metric, found.get(metric)) for metric in metrics)) for name, found in given.items())
    title = f"outputs of {_label(model)} beside the source's"
    return Table(("output", *metrics), rows, title=title, right=frozenset(range(1, 1 + len(metrics))))


def _label(model: Model) -> str:
    return SOURCE if model.chain == SOURCE else f"the {model.label}"


def _value(metric: str, given: Any) -> str:
    return metric_text(metric, estimate(given).value) if given is not None else "-"


def _ratio(given: Any) -> str:
    return ratio_text(estimate(given)) if given is not None else "-"
