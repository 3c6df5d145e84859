"""The charts of a run: two metrics of each trial, the best so far, the measurements of a model, the effects.

They are Altair charts, which notebooks show as they are; `drawing` turns them into SVG.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autoopt.metrics import Estimate, Objective, headline_metrics, is_ratio_metric
from autoopt.model.candidate import Candidate
from autoopt.report.drawing import BEST, FEASIBLE, FRONT, INFEASIBLE, TEXT, falls, metric_axis, require_altair
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
ACTIVE, IDLE = "the machine was busy or unsteady", "the machine was quiet"


@dataclass(frozen=True)
class Axis:
    """An axis. Values beyond `low` and `high` are drawn at its ends."""

    title: str
    low: float
    high: float
    metric: str = ""
    """Empty for the numbers of trials."""

    def x(self, field: str) -> alt.X:
        import altair as alt

        labels = metric_axis(self.metric, 6, vertical=False) if self.metric else alt.Axis(format="d", tickMinStep=1)
        return alt.X(field, title=self.title, scale=self._scale(), axis=labels)

    def y(self, field: str) -> alt.Y:
        """The vertical channel; better is up where the metric is compared by its ratio."""
        import altair as alt

        scale = self._scale(reverse=falls(self.metric))
        return alt.Y(field, title=self.title, scale=scale, axis=metric_axis(self.metric))

    def _scale(self, *, reverse: bool = False) -> alt.Scale:
        import altair as alt

        kind = "log" if self.low > 0 and self.high / self.low > WIDE else "linear"
        return alt.Scale(type=kind, domain=[self.low, self.high], nice=False, clamp=True, reverse=reverse)


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

    The axes show the source, the best model, the front and the constraint. A trial beyond that is drawn at the edge, so
    that it does not squeeze the others.
    """
    objective = first_objective(result).metric
    points = _points(result, trials, metric)
    if not points:
        return None
    bound = constraint_bound(result, metric)
    shown = [point for point in points if point.kind not in (FEASIBLE_KIND, INFEASIBLE_KIND)]
    x = _axis(objective, [end for point in shown for end in (point.x.low, point.x.value, point.x.high)])
    y = _axis(metric, [*(point.y for point in shown), *([] if bound is None else [bound])])
    layers = _point_layers(points, x, y, links=links)
    if bound is not None:
        import altair as alt

        rule = alt.Chart(alt.Data(values=[{"y": bound, "label": "constraint"}])).encode(y=y.y("y:Q"))
        line = rule.mark_rule(color=INFEASIBLE, strokeDash=[5, 4])
        label = rule.mark_text(color=INFEASIBLE, align="right", dy=-6, x="width").encode(text="label:N")
        layers = [line, label, *layers]
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
    y = _axis(objective.metric, limits)
    layers = _point_layers(points, x, y, links=links)
    import altair as alt

    line = alt.Chart(alt.Data(values=list(steps))).mark_line(interpolate="step-after", color=BEST)
    return _layered([line.encode(x=x.x("x:Q"), y=y.y("y:Q")), *layers])


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

    quiet = [measurement.ratio for measurement in measurements if not measurement.busy]
    y = _axis(metric, [end for ratio in (pooled, *quiet) for end in (ratio.low, ratio.high)])
    rows: list[dict[str, object]] = []
    for number, measurement in enumerate(measurements, start=1):
        state = ACTIVE if measurement.busy else IDLE
        text = f"measurement {number}: {estimate_text(metric, measurement.ratio)}, {state}"
        rows.append({"number": number, "state": state, "text": text, **vars(measurement.ratio)})
    colours = alt.Scale(domain=[IDLE, ACTIVE], range=[FEASIBLE, FRONT])
    base = alt.Chart(alt.Data(values=rows)).encode(
        x=alt.X("number:O", title="measurement", axis=alt.Axis(labelAngle=0)),
        color=alt.Color("state:N", scale=colours, legend=None),
    )
    intervals = base.mark_rule(strokeWidth=2).encode(y=y.y("low:Q"), y2="high:Q")
    dots = base.mark_point(filled=True, size=70).encode(
        y=y.y("value:Q"),
        color=alt.Color("state:N", scale=colours, legend=alt.Legend(title=None, columns=1)),
        tooltip="text:N",
        description="text:N",
    )
    band = alt.Chart(alt.Data(values=[vars(pooled)]))
    drawn = band.mark_rect(color=BEST, opacity=0.2).encode(y=y.y("low:Q"), y2="high:Q")
    return _layered([drawn, intervals, dots])


def explaining(effects: Sequence[FactorEffect]) -> list[FactorEffect]:
    """The effects with a share that can be seen."""
    return [effect for effect in effects if effect.share >= 0.01]


def effects_chart(effects: Sequence[FactorEffect]) -> alt.LayerChart | None:
    """Chart the share of the variance that each pass or parameter explains; None if none explains any."""
    strong = explaining(effects)
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


def _axis(metric: str, values: Sequence[float]) -> Axis:
    """The axis of a metric for the values that matter, with some room beyond them."""
    low, high = min(values), max(values)
    if low > 0 and is_ratio_metric(metric):
        factor = max((high / low) ** MARGIN, 1.02)
        return Axis(metric, low / factor, high * factor, metric)
    room = max(MARGIN * (high - low), 0.02 * max(abs(low), abs(high))) or 0.5
    return Axis(metric, low - room, high + room, metric)


def _point_layers(points: Iterable[Point], x: Axis, y: Axis, *, links: str | None) -> list[alt.Chart]:
    """Intervals along x, the points, and the names of source and best model."""
    require_altair()
    import altair as alt

    rows: list[dict[str, object]] = []
    for point in points:
        row = {"kind": point.kind, "x": point.x.value, "low": point.x.low, "high": point.x.high, "y": point.y}
        rows.append({**row, "text": point.text})
        if links is not None:
            fragment = links.removesuffix("-") or "found"
            if point.trial is not None:
                fragment = f"{links}trial-{point.trial}"
            rows[-1]["href"] = f"#{fragment}"
    present = {row["kind"] for row in rows}
    kinds = [kind for kind in KINDS if kind in present]
    colours = alt.Scale(domain=kinds, range=[KINDS[kind][0] for kind in kinds])
    shapes = alt.Scale(domain=kinds, range=[KINDS[kind][1] for kind in kinds])
    base = alt.Chart(alt.Data(values=rows)).encode(x=x.x("x:Q"), y=y.y("y:Q"))
    coloured = base.encode(color=alt.Color("kind:N", scale=colours, legend=None))
    intervals = coloured.mark_rule(opacity=0.35).encode(x=x.x("low:Q"), x2="high:Q")
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


def _layered(layers: Sequence[alt.Chart | alt.LayerChart]) -> alt.LayerChart:
    import altair as alt

    return alt.layer(*layers).resolve_scale(color="independent", shape="independent")
