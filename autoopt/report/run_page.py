"""A run as one HTML page: the answer, the question, the evidence, the way to the model and all trials.

The template `run.html` shows the fields of `Search` for a run, and for each target or model of a run over several.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from autoopt.errors import one_line
from autoopt.metrics import MEDIAN_LATENCY, STEADY_STATE, Estimate, Objective
from autoopt.report.charts import best_so_far, effects_chart, explaining, measurements_chart, trade_offs
from autoopt.report.effects import FactorEffect, Level, chain_levels, effects
from autoopt.report.lineage import lineage_lines, lineage_table
from autoopt.report.measurement import measured_lines, measured_tables
from autoopt.report.pages import Chart, Figure, figures, render
from autoopt.report.run_facts import ModelContent, RunFacts
from autoopt.report.run_lists import trials_table
from autoopt.report.run_view import RunView, changes_from_source, model_table, target_table
from autoopt.report.table import Table
from autoopt.report.words.change import estimate_text
from autoopt.report.words.failures import failure_groups
from autoopt.report.words.formatting import (
    ALL_MEASUREMENTS,
    FIRST_MEASUREMENT,
    constraint_text,
    metric_text,
    number_text,
    objective_text,
    percent,
    plural,
    settings_text,
    short,
)
from autoopt.report.words.markup import shell_word
from autoopt.report.words.verdict import lossy_steps, verdict
from autoopt.results import RunResult, Trial
from autoopt.results.figures import first_objective
from autoopt.results.model import OperatorTime

MOST_TILES: Final = 4
MOST_LAYERS: Final = 12
"""Rows of the table of sensitive layers."""
MOST_OPERATORS: Final = 8
"""Rows of the table of operators, besides one for all others together."""
TITLES: Final = {
    "asked": "Asked",
    "found": "Found",
    "evidence": "Why to believe it",
    "effects": "What each pass and parameter gave",
    "lineage": "How the best model was made",
    "failures": "What failed",
    "trials": "Trials",
    "use": "Use it, and get it again",
}
"""Titles of the sections by id; those of targets and models of a set come before the lineage."""


@dataclass(frozen=True)
class Search:
    """One search on a page: that of a run, or of one of its targets or models."""

    result: RunResult
    trials: Sequence[Trial]
    facts: RunFacts
    models: Table
    prefix: str = ""
    """Begins the ids of its trials on the page."""

    @cached_property
    def found_figures(self) -> list[Figure] | None:
        return figures(self._found_charts())

    def _found_charts(self) -> Iterator[Chart]:
        metric = self.objective.metric
        for other, chart in trade_offs(self.result, self.trials, links=self.prefix).items():
            caption = (
                f"{metric} against {other}, with 95 % intervals. "
                "Points beyond the edge are drawn at the edge. Click a point for its trial."
            )
            yield chart, caption, 300
        caption = f"{metric} of each trial ({FIRST_MEASUREMENT}), and the best feasible one so far."
        yield best_so_far(self.trials, self.objective, links=self.prefix), caption, 260

    @cached_property
    def evidence(self) -> list[str]:
        """Sentences on the measurements of the best model, its caveats, and the end of the race."""
        result, best = self.result, self.result.best
        if best is None:
            return [verdict(result)]
        lines = []
        if best.measured.pairs:
            counts = (
                f"{plural(best.measured.pairs, 'pair')} of blocks, one of the source and one of the candidate in turns"
            )
            lines.append(f"Figures come from {counts}, in {plural(best.measured.rounds, 'measurement')}.")
        texts = (*measured_lines(best), *RunView(result).caveats)
        lines += [f"{text[:1].upper()}{text[1:].rstrip('.')}." for text in texts]
        if result.undecided:
            lines.append(f"Not decided: {result.undecided}. Run it again to measure further.")
        elif not best.is_source and first_objective(result).metric in STEADY_STATE:
            lines.append("The race between the best candidates was decided.")
        return lines

    @cached_property
    def measurement_figures(self) -> list[Figure] | None:
        metric, best = self.objective.metric, self.result.best
        if best is None or metric not in best.ratios or len(self.facts.measurements) < 2:
            return figures(iter(()))
        caption = (
            f"The best model's {metric} in each measurement, compared with the source, with its 95 % interval. "
            f"Band: the result of {ALL_MEASUREMENTS}."
        )
        return figures([(measurements_chart(metric, self.facts.measurements, best.ratios[metric]), caption, 240)])

    @cached_property
    def measured(self) -> list[Table]:
        return measured_tables(self.result.best, outputs=True)

    @cached_property
    def operators(self) -> Table:
        """The operators with the largest changes of time, and all others together; without rows if not profiled."""
        named = [(row.op_type, row) for row in self.facts.operator_times.rows[:MOST_OPERATORS]]
        others = self.facts.operator_times.rows[MOST_OPERATORS:]
        if others:
            source, candidate = sum(row.source or 0.0 for row in others), sum(row.candidate or 0.0 for row in others)
            named.append((plural(len(others), "other"), OperatorTime("", source, candidate)))
        rows = []
        for name, row in named:
            cells = [metric_text(MEDIAN_LATENCY, value) for value in (row.source, row.candidate)]
            change = f"{number_text(row.change)} ms"
            rows.append((name, *cells, change if change.startswith("-") else f"+{change}"))
        return Table(("operator", "source", "best model", "change"), tuple(rows), right=frozenset({1, 2, 3}))

    @cached_property
    def layers(self) -> Table:
        """The layers that 8-bit quantization disturbs most by themselves; without rows if no pass ranked them."""
        rows = []
        for layer in self.facts.sensitivity[:MOST_LAYERS]:
            ratio, share = f"{float(layer['sqnr_db']):.1f} dB", percent(float(layer["work"]))
            rows.append((one_line(str(layer["node"])), str(layer["op_type"]), ratio, share))
        return Table(
            ("layer", "operator", "signal to noise", "share of the work"), tuple(rows), right=frozenset({2, 3})
        )

    @cached_property
    def effect_figures(self) -> list[Figure] | None:
        caption = (
            f"Share of the variation of {self.objective.metric} between trials that a pass (with or without it) or a "
            "parameter explains by itself. An estimate: trials differ in several things at once."
        )
        return figures([(effects_chart(self._effects), caption, 60 + 26 * len(explaining(self._effects)))])

    @cached_property
    def by_chain(self) -> Table:
        levels = [("", level) for level in chain_levels(self.trials, self.objective)]
        return _levels_table(("chain",), levels, self.objective)

    @cached_property
    def by_factor(self) -> Table:
        levels: list[tuple[str, Level]] = []
        for effect in self._effects:
            first, *others = effect.levels
            levels += [(effect.factor, first), *(("", level) for level in others)]
        return _levels_table(("pass or parameter", "value"), levels, self.objective)

    @cached_property
    def failures(self) -> Table:
        rows = []
        for group in failure_groups(self.trials):
            numbers = ", ".join(str(trial.number) for trial in group.trials)
            rows.append((str(len(group.trials)), group.outcome, group.message, numbers))
        return Table(("trials", "outcome", "message of the first", "numbers"), tuple(rows), right=frozenset({0}))

    @cached_property
    def all_trials(self) -> Table:
        return trials_table(self.trials, self.result.objectives, self.result.constraints)

    @cached_property
    def objective(self) -> Objective:
        return first_objective(self.result)

    @cached_property
    def _effects(self) -> list[FactorEffect]:
        return effects(self.trials, self.objective)


@dataclass(frozen=True)
class Way:
    """The steps to a model: boxes, each linked to its row of the table, and all details."""

    prefix: str
    """Begins the ids of its steps on the page."""
    boxes: list[tuple[str, str, str]]
    """Number and name of each step, nodes and bytes."""
    steps: Table
    details: str


@dataclass(frozen=True)
class Part:
    """The section of one of several targets or models."""

    id: str
    title: str
    lead: str
    search: Search
    lineage: Way | None = None


def html_report(result: RunResult, trials: Sequence[Trial] = (), facts: RunFacts | None = None) -> str:
    """Render the page of a run. The trials of a run over several targets are in `facts.part_trials`."""
    facts = facts or RunFacts()
    several = [*_target_parts(result, facts), *_model_parts(result, facts)]
    titles: dict[str, str] = {}
    for name, title in TITLES.items():
        if name == "lineage":
            titles |= {part.id: part.title for part in several}
        titles[name] = title
    view, search, best = RunView(result), None, result.better_model
    tiles: list[tuple[str, str, str, str]] = []
    if best is not None:
        tiles = changes_from_source(result, best)[:MOST_TILES]
    if not result.targets:
        search = Search(result, trials, facts, model_table(result))
    return render(
        "run.html",
        title=f"{facts.name or 'run'} {short(result.run)}",
        titles=titles,
        answer=view.headline,
        lead=view.lead,
        warnings=result.warnings,
        tiles=tiles,
        chain=_chain(result),
        asked=_asked(result, facts),
        search=search,
        several=several,
        way=_way(facts.lineage, facts.models),
        has_better=best is not None,
        parts=[shell_word(part.name) for part in result.parts],
        model=shell_word(facts.model or "model.onnx"),
        lossy=lossy_steps(result),
        has_lossy=result.best_lossy is not None,
        store=f"autoopt runs {short(result.run)}\nautoopt lineage {short(result.run)}",
        work=view.work,
    )


def _target_parts(result: RunResult, facts: RunFacts) -> Iterator[Part]:
    for number, target in enumerate(result.targets, start=1):
        trials, identity = facts.part_trials.get(target.result.run, ()), f"target-{number}"
        search = Search(target.result, trials, RunFacts(), target_table(result, target), f"{identity}-")
        yield Part(identity, f"Target {target.name}", verdict(target.result), search)


def _model_parts(result: RunResult, facts: RunFacts) -> Iterator[Part]:
    for number, part in enumerate(result.parts, start=1):
        trials, identity = facts.part_trials.get(part.result.run, ()), f"part-{number}"
        lead = f"{percent(part.share)} of the time of a whole inference. Chosen: {part.model.short_chain}."
        search = Search(part.result, trials, RunFacts(), model_table(part.result), f"{identity}-")
        way = _way(facts.part_lineages.get(part.name, {}), facts.models, f"{part.name}-")
        yield Part(identity, f"Model {part.name}", f"{lead} {verdict(part.result)}", search, way)


def _chain(result: RunResult) -> list[tuple[str, str]]:
    """The passes of the best model with their searched parameters; none if the source stays."""
    best = result.better_model
    if best is None:
        return []
    return [(name, settings_text(best.point.get(name, {}))) for name in best.short_chain.split(" -> ")]


def _asked(result: RunResult, facts: RunFacts) -> dict[str, str]:
    environment = facts.environment
    machine = [environment.get("os", "")]
    cpu, runtime = environment.get("cpu"), (environment.get("libraries") or {}).get("onnxruntime", "")
    if cpu:
        machine = [str(cpu.get("model", "")), plural(int(cpu["cores"]), "core"), *machine]
    started = ""
    if facts.created:
        started = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(facts.created))
    return {
        "model": facts.model,
        "goal": ", then ".join(map(objective_text, result.objectives)),
        "constraints": "; ".join(map(constraint_text, result.constraints)),
        "evaluation data": facts.evaluation,
        "calibration data": facts.calibration,
        "passes": facts.dag,
        "search": settings_text(facts.search),
        "target": facts.target,
        "machine": ", ".join(filter(None, machine)),
        "runtime": runtime and f"onnxruntime {runtime}",
        "started": started,
    }


def _levels_table(head: tuple[str, ...], levels: Sequence[tuple[str, Level]], objective: Objective) -> Table:
    """Levels of factors with their trials; `head` has the names of the first columns."""
    rows = []
    for factor, level in levels:
        best, median = (estimate_text(objective.metric, Estimate.exact(value)) for value in (level.best, level.median))
        rows.append((*(factor, level.name)[-len(head) :], str(level.trials), best, median))
    columns = (*head, "trials", f"best {objective.metric}", "median")
    return Table(columns, tuple(rows), right=frozenset(range(len(head), len(columns))))


def _way(document: Mapping[str, Any], models: Mapping[str, ModelContent], prefix: str = "") -> Way | None:
    """The steps of a lineage document; None if the source model stays."""
    if not document.get("steps"):
        return None
    steps = lineage_table(document, models)
    boxes = []
    for number, name, nodes, size, *_ in steps.rows:
        texts = [f"{nodes} nodes" if nodes.isdecimal() else "", size.strip("-")]
        boxes.append((number, name, ", ".join(filter(None, texts))))
    return Way(f"step-{prefix}", boxes, steps, "\n".join(lineage_lines(document)))
