"""The charts of a run: two metrics of each trial, the best so far, the measurements of a model, the effects.

They are mappings in the language Vega-Lite; `drawing` turns them into SVG.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from autoopt.metrics import Estimate, Objective, headline_metrics, is_ratio_metric
from autoopt.model.candidate import Candidate
from autoopt.report.drawing import (
    BEST,
    FEASIBLE,
    FRONT,
    INFEASIBLE,
    TEXT,
    Spec,
    falls,
    layer,
    layered,
    metric_axis,
    number,
    text,
    trial_axis,
)
from autoopt.report.effects import FactorEffect
from autoopt.report.run_facts import PairedMeasurement
from autoopt.report.run_view import labelled_models
from autoopt.report.words.change import estimate_text
from autoopt.report.words.formatting import limits_of
from autoopt.report.words.steps import chain_text, trial_title
from autoopt.results import RunResult, Trial
from autoopt.results.figures import first_objective, is_better, is_quality, metrics_of, model_estimate, trial_estimate

QUALITY_CHARTS = 2
"""Number of quality metrics with a chart of their own, in addition to objectives and constraints."""
MARGIN = 0.15
"""Room of an axis beyond the outermost values that matter, as a share of its length, or in logarithms."""
WIDE = 8.0
"""Ratio of an axis's ends from which it is logarithmic."""
FEASIBLE_KIND, INFEASIBLE_KIND, FRONT_KIND = "meets the constraints", "breaks a constraint", "Pareto front"
SOURCE_KIND, BEST_KIND = "source", "best"
KINDS = {
    FEASIBLE_KIND: (FEASIBLE, "circle"),
    INFEASIBLE_KIND: (INFEASIBLE, "cross"),
    FRONT_KIND: (FRONT, "circle"),
    SOURCE_KIND: (TEXT, "diamond"),
    BEST_KIND: (BEST, "square"),
}
"""Colour and shape of each kind of points."""
SAID = {"tooltip": text("text"), "description": text("text")}
"""Channels of what is said of a point."""
ACTIVE, IDLE = "the machine was busy or unsteady", "the machine was quiet"


@dataclass(frozen=True)
class Axis:
    """An axis. Values beyond `low` and `high` are drawn at its ends."""

    title: str
    low: float
    high: float
    metric: str = ""
    """Empty for the numbers of trials."""

    def x(self, field: str) -> Spec:
        labels = metric_axis(self.metric, vertical=False) if self.metric else trial_axis(int(self.high))
        return number(field, title=self.title, scale=self._scale(), axis=labels)

    def y(self, field: str) -> Spec:
        return number(field, title=self.title, scale=self._scale(), axis=metric_axis(self.metric))

    def _scale(self) -> Spec:
        """The scale, on which smaller and faster models are farther up or to the right."""
        kind = "log" if self.low > 0 and self.high / self.low > WIDE else "linear"
        ends = {"domain": [self.low, self.high], "reverse": falls(self.metric)}
        return {"type": kind, "nice": False, "clamp": True, **ends}


@dataclass(frozen=True)
class Point:
    """A trial or a model in a chart."""

    kind: str
    x: float
    y: Estimate
    text: str
    trial: int | None = None


def trade_offs(result: RunResult, trials: Sequence[Trial], *, links: str | None = None) -> dict[str, Spec]:
    """Charts of the first objective against the others, the constraints, quality and the size, by metric.

    With `links`, each trial's point links to its row on the page, whose id begins with that.
    """
    objective = first_objective(result).metric
    quality = list(filter(is_quality, metrics_of(result)))[:QUALITY_CHARTS]
    others = dict.fromkeys([*headline_metrics(result.objectives, result.constraints), *quality, "size"])
    charts = {}
    for name in others:
        if name != objective:
            chart = trade_off(result, trials, name, links=links)
            if chart is not None:
                charts[name] = chart
    return charts


def trade_off(result: RunResult, trials: Sequence[Trial], metric: str, *, links: str | None = None) -> Spec | None:
    """Chart the first objective of every trial against `metric`; None if no trial has both.

    The axes show the source, the best model, the front and the constraint. A trial beyond that is drawn at the edge, so
    that it does not squeeze the others.
    """
    objective = first_objective(result).metric
    points = _points(result, trials, metric)
    if not points:
        return None
    bound = constraint_bound(result, metric)
    shown = [point for point in points if point.kind not in (FEASIBLE_KIND, INFEASIBLE_KIND)] or points
    x = _axis(metric, [*(point.x for point in shown), *([] if bound is None else [bound])])
    y = _axis(objective, [end for point in shown for end in (point.y.low, point.y.value, point.y.high)])
    below = []
    if bound is not None:
        row = {"x": bound, "label": "constraint"}
        line = {"type": "rule", "color": INFEASIBLE, "strokeDash": [5, 4]}
        label = {"type": "text", "color": INFEASIBLE, "align": "left", "baseline": "bottom", "dx": 4, "y": "height"}
        below = [layer(line, {"x": x.x("x")}, row), layer(label, {"x": x.x("x"), "text": text("label")}, row)]
    return _scatter(points, x, y, below, links=links)


def best_so_far(trials: Sequence[Trial], objective: Objective, *, links: str | None = None) -> Spec | None:
    """Chart the first objective of each trial and the best feasible one so far; None if it was never measured."""
    points: list[Point] = []
    for trial in trials:
        estimate = trial_estimate(trial, objective.metric)
        if estimate is not None:
            title = f"{trial_title(trial)}, {estimate_text(objective.metric, estimate)}"
            points.append(Point(_kind(trial), trial.number, Estimate.exact(estimate.value), title, trial.number))
    if not points:
        return None
    steps = _best_steps(points, objective)
    x = Axis("trial", -0.5, max(point.x for point in points) + 0.5)
    limits = [step["y"] for step in steps] or [point.y.value for point in points]
    if is_ratio_metric(objective.metric):
        limits.append(1.0)
    y = _axis(objective.metric, limits)
    line = {"type": "line", "interpolate": "step-after", "color": BEST}
    below = [layer(line, {"x": x.x("x"), "y": y.y("y")}, *steps)] if steps else []
    return _scatter(points, x, y, below, links=links)


def _best_steps(points: Iterable[Point], objective: Objective) -> list[dict[str, float]]:
    """The best feasible value up to each trial; nothing before the first feasible one."""
    steps: list[dict[str, float]] = []
    best: float | None = None
    for point in points:
        if point.kind == FEASIBLE_KIND and (best is None or is_better(point.y.value, best, objective.goal)):
            best = point.y.value
        if best is not None:
            steps.append({"x": point.x, "y": best})
    return steps


def measurements_chart(metric: str, measurements: Sequence[PairedMeasurement], pooled: Estimate) -> Spec | None:
    """Chart the change of a metric in each measurement of one model with its interval, and the pooled one as a band."""
    if not measurements:
        return None
    quiet = [measurement.ratio for measurement in measurements if not measurement.busy]
    y = _axis(metric, [end for ratio in (pooled, *quiet) for end in (ratio.low, ratio.high)])
    rows: list[dict[str, object]] = []
    for index, measurement in enumerate(measurements, start=1):
        state = ACTIVE if measurement.busy else IDLE
        said = f"measurement {index}: {estimate_text(metric, measurement.ratio)}, {state}"
        rows.append({"number": index, "state": state, "text": said, **vars(measurement.ratio)})
    colours = {"domain": [IDLE, ACTIVE], "range": [FEASIBLE, FRONT]}
    x = {"field": "number", "type": "ordinal", "title": "measurement", "axis": {"labelAngle": 0}}
    extent = {"y": y.y("low"), "y2": {"field": "high"}}
    band = layer({"type": "rect", "color": BEST, "opacity": 0.2}, extent, vars(pooled))
    colour = text("state", scale=colours, legend=None)
    intervals = layer({"type": "rule", "strokeWidth": 2}, {"x": x, "color": colour, **extent})
    colour = text("state", scale=colours, legend={"title": None, "columns": 1})
    dots = layer({"type": "point", "filled": True, "size": 70}, {"x": x, "y": y.y("value"), "color": colour, **SAID})
    return layered(rows, [band, intervals, dots])


def explaining(effects: Sequence[FactorEffect]) -> list[FactorEffect]:
    """The effects with a share that can be seen."""
    return [effect for effect in effects if effect.share >= 0.01]


def effects_chart(effects: Sequence[FactorEffect]) -> Spec | None:
    """Chart the share of the variance that each pass or parameter explains; None if none explains any."""
    strong = explaining(effects)
    if not strong:
        return None
    rows = []
    for effect in strong:
        said = f"{effect.factor} explains {effect.share:.0%} of the variation"
        rows.append({"factor": effect.factor, "share": effect.share, "label": f"{effect.share:.0%}", "text": said})
    y = text("factor", sort=None, title=None, axis={"labelLimit": 0})
    x = number("share", title="share of the variation", axis={"format": "%", "tickCount": 4})
    bars = layer({"type": "bar", "color": FEASIBLE}, {"x": x, "y": y, **SAID})
    label = {"type": "text", "align": "left", "dx": 4, "color": TEXT}
    labels = layer(label, {"x": x, "y": y, "text": text("label")})
    return {**layered(rows, [bars, labels]), "padding": {"left": 24, "top": 5, "right": 24, "bottom": 5}}


def constraint_bound(result: RunResult, metric: str) -> float | None:
    """The bound of the first constraint on this metric, on the scale of its figures; None without one."""
    source = result.baseline.metrics.get(metric)
    constraints = [constraint for constraint in result.constraints if constraint.metric == metric]
    limits = limits_of(metric, constraints[:1], result.baseline.metrics)
    if not limits:
        return None
    if not is_ratio_metric(metric):
        return limits[-1]
    return source and limits[-1] / source


def _points(result: RunResult, trials: Sequence[Trial], metric: str) -> list[Point]:
    """The trials, then the front, the source and the best model on top of them."""
    objective = first_objective(result).metric
    points = []
    models = {model.candidate for model in result.models}
    numbers: dict[Candidate | None, int] = {}
    for trial in trials:
        numbers.setdefault(trial.candidate, trial.number)
        x, y = trial_estimate(trial, metric), trial_estimate(trial, objective)
        if x is not None and y is not None and trial.candidate not in models:
            title = f"{trial_title(trial)}, {_pair_text(objective, y, metric, x)}"
            points.append(Point(_kind(trial), x.value, y, title, trial.number))
    kinds = {"source": SOURCE_KIND, "best": BEST_KIND}
    labelled = [(kinds.get(label, FRONT_KIND), model) for label, model in labelled_models(result)]
    # The best model is drawn last, above the others.
    for kind, model in sorted(labelled, key=lambda pair: pair[0] == BEST_KIND):
        x, y = model_estimate(model, metric), model_estimate(model, objective)
        if x is not None and y is not None:
            title = f"{kind}: {chain_text(model)}, {_pair_text(objective, y, metric, x)}"
            points.append(Point(kind, x.value, y, title, numbers.get(model.candidate)))
    return points


def _kind(trial: Trial) -> str:
    return FEASIBLE_KIND if trial.feasible else INFEASIBLE_KIND


def _pair_text(objective: str, first: Estimate, metric: str, second: Estimate) -> str:
    return f"{objective} {estimate_text(objective, first)}, {metric} {estimate_text(metric, second)}"


def _axis(metric: str, values: Sequence[float]) -> Axis:
    """The axis of a metric for the values that matter, with some room beyond them."""
    low, high = min(values), max(values)
    if low > 0 and is_ratio_metric(metric):
        factor = max((high / low) ** MARGIN, 1.02)
        return Axis(metric, low / factor, high * factor, metric)
    room = max(MARGIN * (high - low), 0.02 * max(abs(low), abs(high))) or 0.5
    return Axis(metric, low - room, high + room, metric)


def _scatter(points: Iterable[Point], x: Axis, y: Axis, below: Sequence[Spec], *, links: str | None) -> Spec:
    """Some layers, and above them vertical intervals, the points, and the names of source and best model."""
    rows: list[dict[str, object]] = []
    for point in points:
        row = {"kind": point.kind, "x": point.x, "y": point.y.value, "low": point.y.low, "high": point.y.high}
        rows.append({**row, "text": point.text})
        if links is not None:
            fragment = links.removesuffix("-") or "found"
            if point.trial is not None:
                fragment = f"{links}trial-{point.trial}"
            rows[-1]["href"] = f"#{fragment}"
    present = {row["kind"] for row in rows}
    kinds = [kind for kind in KINDS if kind in present]
    palette, forms = map(list, zip(*map(KINDS.__getitem__, kinds), strict=True))
    colour = text("kind", scale={"domain": kinds, "range": palette}, legend=None)
    extent = {"x": x.x("x"), "y": y.y("low"), "y2": {"field": "high"}}
    intervals = layer({"type": "rule", "opacity": 0.35}, {"color": colour, **extent})
    place = {"x": x.x("x"), "y": y.y("y")}
    shown = {**place, **SAID, "color": {**colour, "legend": {"title": None}}}
    shown["shape"] = text("kind", scale={"domain": kinds, "range": forms}, legend={"title": None})
    if links is not None:
        shown["href"] = text("href")
    marks = layer({"type": "point", "filled": True, "opacity": 0.9, "size": 70}, shown)
    name = {"type": "text", "dy": -12, "fontSize": 12, "fontWeight": "bold", "color": TEXT}
    labels = layer(name, {**place, "text": text("kind")})
    labels["transform"] = [{"filter": {"field": "kind", "oneOf": [SOURCE_KIND, BEST_KIND]}}]
    return layered(rows, [*below, intervals, marks, labels])
