"""The measurements behind a model's figures: a line or two, and tables of throughput, profiles and outputs."""

from __future__ import annotations

from collections.abc import Mapping

from autoopt.errors import one_line
from autoopt.metrics import Estimate, is_ratio_metric, known_metric
from autoopt.report.table import Table
from autoopt.report.words.change import NOTICED, estimate_text, ratio_change
from autoopt.report.words.formatting import metric_text, plural, short
from autoopt.results import MeasurementSummary, ModelResult

MOST_KINDS = 4
"""Outputs whose kinds are named."""
PROFILE_METRICS = ("latency_p50", "latency_p90")


def measured_lines(model: ModelResult | None) -> list[str]:
    """Describe how the model was measured and compared, and name the output that differs most from the source's.

    Empty for the source model, and if nothing was recorded.
    """
    if model is None or model.is_source:
        return []
    lines = []
    if model.measured.rounds:
        lines.append(_rounds_text(model.measured))
    outputs = model.measured.outputs
    if len(outputs) > 1:
        lines += _worst_output(outputs)
    if model.measured.kinds:
        texts = [f"{one_line(name)} as {kind.replace('_', ' ')}" for name, kind in model.measured.kinds.items()]
        if len(texts) > MOST_KINDS:
            texts[MOST_KINDS:] = [f"{len(texts) - MOST_KINDS} more"]
        lines.append(f"agreement compares {', '.join(texts)}")
    return lines


def _rounds_text(measured: MeasurementSummary) -> str:
    parts = [f"measured {measured.rounds} times"] if measured.rounds != 1 else ["measured once"]
    if measured.threads:
        parts[0] += f" on {plural(measured.threads, 'thread')}"
    if measured.batch_size not in (None, 1):
        parts.append(f"batches of {measured.batch_size}")
    if len(measured.affinity) < (measured.cores or 0):
        noun = "core" if len(measured.affinity) == 1 else "cores"
        parts.append(f"{noun} {', '.join(map(str, measured.affinity))}")
    text = ", ".join(parts)
    if measured.disturbed_rounds:
        return f"{text}; {disturbance(measured)}, which the ranges include"
    return text


def disturbance(measured: MeasurementSummary) -> str:
    """`other programs or the host disturbed 3 of 4 measurements (source up to 1.4x slower)`."""
    text = (
        f"other programs or the host disturbed {measured.disturbed_rounds} of {plural(measured.rounds, 'measurement')}"
    )
    if measured.pace is not None and measured.pace >= NOTICED:
        text += f" (source up to {measured.pace:.1f}x slower)"
    return text


def _worst_output(outputs: Mapping[str, Mapping[str, Estimate]]) -> list[str]:
    """The output with the worst value of the first fidelity metric."""
    metrics = [metric for values in outputs.values() for metric in values]
    first_metric = known_metric(metrics[0]) if metrics else None
    if first_metric is None:
        return []
    metric = first_metric.name
    values = {name: estimates[metric].value for name, estimates in outputs.items() if metric in estimates}
    choose = max if first_metric.direction == "minimize" else min
    worst = choose(values, key=values.__getitem__)
    text = metric_text(metric, values[worst])
    return [f"least faithful of {len(outputs)} outputs: {one_line(worst)}, {metric} {text}"]


def measured_tables(model: ModelResult | None, *, outputs: bool = False) -> list[Table]:
    """Tables of what was measured: models on the way, throughput, profiles and, if asked for and several, `outputs`."""
    if model is None:
        return []
    tables = [_intermediate_table(model), _throughput_table(model), _profiles_table(model)]
    if outputs and len(model.measured.outputs) > 1:
        tables.append(_outputs_table(model))
    return [table for table in tables if table.rows]


def _intermediate_table(model: ModelResult) -> Table:
    """The models on the way to this one: their metrics and, where there is a ratio, the change from the source."""
    metrics = list(dict.fromkeys(metric for row in model.intermediate for metric in row.metrics))
    rows = []
    for row in model.intermediate:
        cells = [row.node, short(row.artifact)]
        for metric in metrics:
            text = metric_text(metric, row.metrics.get(metric))
            if metric in row.ratios and is_ratio_metric(metric):
                text = f"{text}: {ratio_change(metric, row.ratios[metric])}"
            cells.append(text)
        rows.append((*cells, "" if row.outcome.good else str(row.outcome)))
    columns = ("after", "artifact", *metrics, "outcome")
    title = f"on the way to {_label(model)}, with changes from the source"
    return Table(columns, tuple(rows), title=title, right=frozenset(range(2, 2 + len(metrics))))


def _throughput_table(model: ModelResult) -> Table:
    rows = []
    for row in model.measured.throughput:
        change = f"refused: {row.refused}" if row.refused else estimate_text("throughput", row.ratio)
        source, candidate = _value("throughput", row.source), _value("throughput", row.candidate)
        rows.append((row.profile or "-", str(row.batch_size), str(row.concurrency), source, candidate, change))
    columns = ("profile", "batch size", "concurrency", "source", _label(model), "change")
    return Table(columns, tuple(rows), title="throughput", right=frozenset(range(1, 6)))


def _profiles_table(model: ModelResult) -> Table:
    profiles = model.measured.profiles
    measured: set[str] = set()
    for profile in profiles.values():
        measured.update(profile.metrics)
    metrics = [name for name in PROFILE_METRICS if name in measured]
    columns = ["profile"]
    for metric in metrics:
        columns += [metric, "change"]
    rows = []
    for name, profile in profiles.items():
        cells = [name]
        for metric in metrics:
            cells += [_value(metric, profile.metrics.get(metric)), estimate_text(metric, profile.ratios.get(metric))]
        rows.append(tuple(cells))
    title = f"latency of {_label(model)} by profile"
    return Table(tuple(columns), tuple(rows), title=title, right=frozenset(range(1, len(columns))))


def _outputs_table(model: ModelResult) -> Table:
    outputs = model.measured.outputs
    metrics = list(dict.fromkeys(metric for values in outputs.values() for metric in values))
    rows = []
    for name, values in outputs.items():
        rows.append((name, *(_value(metric, values.get(metric)) for metric in metrics)))
    title = f"outputs of {_label(model)} compared with the source"
    return Table(("output", *metrics), tuple(rows), title=title, right=frozenset(range(1, 1 + len(metrics))))


def _label(model: ModelResult) -> str:
    if model.is_source:
        return "the source"
    return "the best model"


def _value(metric: str, estimate: Estimate | None) -> str:
    return metric_text(metric, None if estimate is None else estimate.value)
