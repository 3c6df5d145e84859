"""The charts of a run: two metrics of each trial, the best so far, the measurements of a model, the effects.

They are Altair charts, which notebooks show as they are; `drawing` turns them into SVG.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autoopt.metrics import Estimate, Objective, headline_metrics, is_ratio_metric
from autoopt.model.candidate import Candidate
from autoopt.report.drawing import BEST, FEASIBLE, FRONT, INFEASIBLE, TEXT, falls, is_log, metric_axis, require_altair
from autoopt.report.effects import FactorEffect
from autoopt.report.run_facts import PairedMeasurement
from autoopt.report.run_view import labelled_models
from autoopt.report.words.change import estimate_text
from autoopt.report.words.figures import chain_text, trial_title
from autoopt.report.words.limits import limits_of
from autoopt.results import RunResult, Trial
from autoopt.results.figures import first_objective, is_better, is_quality, metrics_of, model_estimate, trial_estimate

if TYPE_CHECKING:
    import altair as alt

QUALITY_CHARTS = 2
"""Number of quality metrics with a chart of their own, in addition to objectives and constraints."""
MARGIN = 0.08
"""Share of an axis that is left free beyond its outermost values."""
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
ACTIVE, IDLE = "the machine was busy or unsteady", "the machine was quiet"


@dataclass(frozen=True)
class Axis:
    """A metric's axis. Values beyond `low` and `high` are drawn at its ends."""

    title: str
    low: float
    high: float
    metric: str = ""
    """Empty for the numbers of trials."""

    def clip(self, value: float) -> float:
        return min(max(value, self.low), self.high)

    def scale(self, *, vertical: bool = True) -> alt.Scale:
        """The scale; better is up where the metric is compared by its ratio."""
        import altair as alt

        kind = "log" if is_log(self.low, self.high) else "linear"
        return alt.Scale(type=kind, domain=[self.low, self.high], nice=False, reverse=vertical and falls(self.metric))

    def labels(self, count: int, *, vertical: bool = True) -> alt.Axis:
        import altair as alt

        if not self.metric:
            step = max(1, math.ceil((self.high - self.low) / count))
            return alt.Axis(values=list(range(math.ceil(self.low), math.floor(self.high) + 1, step)), format="d")
        return metric_axis(self.metric, self.low, self.high, count, vertical=vertical)


@dataclass(frozen=True)
class Point:
    """A trial or a model in a chart."""

    kind: str
    x: Estimate
    y: float
    text: str
    trial: int | None = None


def trade_offs(result: RunResult, trials: Sequence[Trial], *, links: str | None = None) -> dict[str, alt.LayerChart]:
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


def trade_off(
    result: RunResult, trials: Sequence[Trial], metric: str, *, links: str | None = None
) -> alt.LayerChart | None:
    """Chart the first objective of every trial against `metric`; None if no trial has both.

    The axes show the source, the best model, the front and the constraint, and as much again on either side. A trial
    beyond that is drawn at the edge, so that it does not squeeze the others.
    """
    objective = first_objective(result).metric
    points = _points(result, trials, metric)
    if not points:
        return None
    bound = constraint_bound(result, metric)
    x_ends: list[float] = []
    y_ends: list[float] = []
    for point in points:
        if point.kind in (FEASIBLE_KIND, INFEASIBLE_KIND):
            continue
        x_ends.append(point.x.value)
        y_ends.append(point.y)
        if point.kind == BEST_KIND:
            x_ends += (point.x.low, point.x.high)
    if bound is not None:
        y_ends.append(bound)
    x = _axis(objective, x_ends, [point.x.value for point in points])
    y = _axis(metric, y_ends, [point.y for point in points])
    layers = _point_layers(points, x, y, links=links)
    if bound is not None:
        layers.insert(0, _constraint_rule(bound, y))
    return _layered(layers)


def best_so_far(trials: Sequence[Trial], objective: Objective, *, links: str | None = None) -> alt.LayerChart | None:
    """Chart the first objective of each trial and the best feasible one so far; None if it was never measured."""
    points: list[Point] = []
    for trial in trials:
        estimate = trial_estimate(trial, objective.metric)
        if estimate is not None:
            text = f"{trial_title(trial)}, {estimate_text(objective.metric, estimate)}"
            points.append(Point(_kind(trial), Estimate.exact(trial.number), estimate.value, text, trial.number))
    if not points:
        return None
    steps = _best_steps(points, objective)
    x = Axis("trial", -0.5, max(point.x.value for point in points) + 0.5)
    limits = [step["y"] for step in steps] or [point.y for point in points]
    if is_ratio_metric(objective.metric):
        limits.append(1.0)
    y = _axis(objective.metric, limits, [point.y for point in points])
    return _layered([_step_line(steps, x, y), *_point_layers(points, x, y, links=links)])


def _best_steps(points: Iterable[Point], objective: Objective) -> list[dict[str, float]]:
    """The best feasible value up to each trial; nothing before the first feasible one."""
    steps: list[dict[str, float]] = []
    best: float | None = None
    for point in points:
        if point.kind == FEASIBLE_KIND and (best is None or is_better(point.y, best, objective.goal)):
            best = point.y
        if best is not None:
            steps.append({"x": point.x.value, "y": best})
    return steps


def measurements_chart(
    metric: str, measurements: Sequence[PairedMeasurement], pooled: Estimate
) -> alt.LayerChart | None:
    """Chart the change of a metric in each measurement of one model with its interval, and the pooled one as a band."""
    if not measurements:
        return None
    require_altair()
    import altair as alt

    ends: list[float] = []
    undisturbed_ends = [pooled.low, pooled.high]
    for measurement in measurements:
        ends += (measurement.ratio.low, measurement.ratio.high)
        if not measurement.busy:
            undisturbed_ends += (measurement.ratio.low, measurement.ratio.high)
    y = _axis(metric, undisturbed_ends, ends)
    rows: list[dict[str, object]] = []
    for number, measurement in enumerate(measurements, start=1):
        ratio = measurement.ratio
        state = ACTIVE if measurement.busy else IDLE
        text = f"measurement {number}: {estimate_text(metric, ratio)}, {state}"
        bounds = {"value": y.clip(ratio.value), "low": y.clip(ratio.low), "high": y.clip(ratio.high)}
        rows.append({"number": number, "state": state, "text": text, **bounds})
    colours = alt.Scale(domain=[IDLE, ACTIVE], range=[FEASIBLE, FRONT])
    base = alt.Chart(alt.Data(values=rows)).encode(
        x=alt.X("number:O", title="measurement", axis=alt.Axis(labelAngle=0)),
        color=alt.Color("state:N", scale=colours, legend=None),
    )
    low = alt.Y("low:Q", title=y.title, scale=y.scale(), axis=y.labels(5))
    intervals = base.mark_rule(strokeWidth=2).encode(y=low, y2="high:Q")
    dots = base.mark_point(filled=True, size=70).encode(
        y=alt.Y("value:Q", scale=y.scale()),
        color=alt.Color("state:N", scale=colours, legend=alt.Legend(title=None, columns=1)),
        tooltip="text:N",
        description="text:N",
    )
    band = alt.Chart(alt.Data(values=[{"low": y.clip(pooled.low), "high": y.clip(pooled.high)}]))
    drawn = band.mark_rect(color=BEST, opacity=0.2).encode(y=low, y2="high:Q")
    return _layered([drawn, intervals, dots])


def effects_chart(effects: Sequence[FactorEffect]) -> alt.LayerChart | None:
    """Chart the share of the variance that each pass or parameter explains; None if none explains any."""
    strong = [effect for effect in effects if effect.share >= 0.01]
    if not strong:
        return None
    require_altair()
    import altair as alt

    rows = []
    for effect in strong:
        text = f"{effect.factor} explains {effect.share:.0%} of the variation"
        rows.append({"factor": effect.factor, "share": effect.share, "label": f"{effect.share:.0%}", "text": text})
    base = alt.Chart(alt.Data(values=rows)).encode(
        y=alt.Y("factor:N", sort=None, title=None, axis=alt.Axis(labelLimit=0)),
        x=alt.X("share:Q", title="share of the variation", axis=alt.Axis(format="%", tickCount=4)),
    )
    bars = base.mark_bar(color=FEASIBLE).encode(tooltip="text:N", description="text:N")
    labels = base.mark_text(align="left", dx=4, color=TEXT).encode(text="label:N")
    return _layered([bars, labels]).properties(padding={"left": 24, "top": 5, "right": 24, "bottom": 5})


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
        x, y = trial_estimate(trial, objective), trial_estimate(trial, metric)
        if x is not None and y is not None and trial.candidate not in models:
            text = f"{trial_title(trial)}, {_pair_text(objective, x, metric, y)}"
            points.append(Point(_kind(trial), x, y.value, text, trial.number))
    kinds = {"source": SOURCE_KIND, "best": BEST_KIND}
    labelled = [(kinds.get(label, FRONT_KIND), model) for label, model in labelled_models(result)]
    # The best model is drawn last, above the others.
    for kind, model in sorted(labelled, key=lambda pair: pair[0] == BEST_KIND):
        x, y = model_estimate(model, objective), model_estimate(model, metric)
        if x is not None and y is not None:
            text = f"{kind}: {chain_text(model)}, {_pair_text(objective, x, metric, y)}"
            points.append(Point(kind, x, y.value, text, numbers.get(model.candidate)))
    return points


def _kind(trial: Trial) -> str:
    return FEASIBLE_KIND if trial.feasible else INFEASIBLE_KIND


def _pair_text(objective: str, x: Estimate, metric: str, y: Estimate) -> str:
    return f"{objective} {estimate_text(objective, x)}, {metric} {estimate_text(metric, y)}"


def _axis(metric: str, important: Sequence[float], values: Sequence[float]) -> Axis:
    """The axis of a metric for the important values and all others near them."""
    important = important or values
    low, high = min(important), max(important)
    lowest, highest = _log_ends(low, high, values) if is_log(low, high) else _linear_ends(low, high, values)
    # All values are equal: an axis needs a length.
    if not highest > lowest:
        lowest, highest = lowest - 0.5, highest + 0.5
    return Axis(metric, lowest, highest, metric)


def _linear_ends(low: float, high: float, values: Sequence[float]) -> tuple[float, float]:
    """The ends of a linear axis: a margin, or up to as much again for values beyond the important ones."""
    reach = max(high - low, 0.02 * max(abs(low), abs(high)))
    margin = MARGIN * reach
    lowest = low - margin if min(values) >= low else max(low - reach, min(values) - margin)
    highest = high + margin if max(values) <= high else min(high + reach, max(values) + margin)
    # Near 0, an axis of ratios would reach `100x faster` for nothing.
    return max(lowest, low / 2) if low > 0 else lowest, highest


def _log_ends(low: float, high: float, values: Sequence[float]) -> tuple[float, float]:
    """The ends of a logarithmic axis: a margin, or up to a factor of 2 for values beyond the important ones."""
    margin = (high / low) ** MARGIN
    lowest = low / margin if min(values) >= low else max(low / 2, min(values) / margin)
    highest = high * margin if max(values) <= high else min(2 * high, max(values) * margin)
    return lowest, highest


def _point_layers(points: Iterable[Point], x: Axis, y: Axis, *, links: str | None) -> list[alt.Chart]:
    """Intervals along x, the points, and the names of source and best model."""
    require_altair()
    import altair as alt

    rows = [_row(point, x, y, links=links) for point in points]
    present = {row["kind"] for row in rows}
    kinds = [kind for kind in KINDS if kind in present]
    colours = alt.Scale(domain=kinds, range=[KINDS[kind][0] for kind in kinds])
    shapes = alt.Scale(domain=kinds, range=[KINDS[kind][1] for kind in kinds])
    base = alt.Chart(alt.Data(values=rows)).encode(
        x=alt.X("x:Q", title=x.title, scale=x.scale(vertical=False), axis=x.labels(6, vertical=False)),
        y=alt.Y("y:Q", title=y.title, scale=y.scale(), axis=y.labels(5)),
    )
    coloured = base.encode(color=alt.Color("kind:N", scale=colours, legend=None))
    intervals = coloured.mark_rule(opacity=0.35).encode(
        x=alt.X("low:Q", title=x.title, scale=x.scale(vertical=False)), x2="high:Q"
    )
    marks = coloured.mark_point(filled=True, opacity=0.9, size=70).encode(
        color=alt.Color("kind:N", scale=colours, legend=alt.Legend(title=None)),
        shape=alt.Shape("kind:N", scale=shapes, legend=alt.Legend(title=None)),
        tooltip="text:N",
        description="text:N",
    )
    if links is not None:
        marks = marks.encode(href="href:N")
    names = base.transform_filter(alt.FieldOneOfPredicate(field="kind", oneOf=[SOURCE_KIND, BEST_KIND]))
    labels = names.mark_text(dy=-12, fontSize=12, fontWeight="bold", color=TEXT).encode(text="kind:N")
    return [intervals, marks, labels]


def _row(point: Point, x: Axis, y: Axis, *, links: str | None) -> dict[str, object]:
    row: dict[str, object] = {
        "kind": point.kind,
        "x": x.clip(point.x.value),
        "low": x.clip(point.x.low),
        "high": x.clip(point.x.high),
        "y": y.clip(point.y),
        "text": point.text,
    }
    if (row["x"], row["y"]) != (point.x.value, point.y):
        row["text"] = f"{point.text} (beyond the edge)"
    if links is not None and point.trial is not None:
        row["href"] = f"#{links}trial-{point.trial}"
    elif links is not None:
        row["href"] = f"#{links.removesuffix('-') or 'found'}"
    return row


def _constraint_rule(bound: float, y: Axis) -> alt.LayerChart:
    require_altair()
    import altair as alt

    base = alt.Chart(alt.Data(values=[{"y": y.clip(bound), "label": "constraint"}])).encode(
        y=alt.Y("y:Q", title=y.title, scale=y.scale())
    )
    line = base.mark_rule(color=INFEASIBLE, strokeDash=[5, 4])
    label = base.mark_text(color=INFEASIBLE, align="right", dy=-6, x="width").encode(text="label:N")
    return alt.layer(line, label)


def _step_line(steps: Sequence[dict[str, float]], x: Axis, y: Axis) -> alt.Chart:
    require_altair()
    import altair as alt

    rows = [{"x": step["x"], "y": y.clip(step["y"])} for step in steps]
    return (
        alt.Chart(alt.Data(values=rows))
        .mark_line(interpolate="step-after", color=BEST)
        .encode(
            x=alt.X("x:Q", title=x.title, scale=x.scale(vertical=False)), y=alt.Y("y:Q", title=y.title, scale=y.scale())
        )
    )


def _layered(layers: Sequence[alt.Chart | alt.LayerChart]) -> alt.LayerChart:
    import altair as alt

    return alt.layer(*layers).resolve_scale(color="independent", shape="independent")
