"""A run as one HTML page: the answer, the question, the evidence, the way to the model and all trials."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from autoopt.metrics import STEADY_STATE, Estimate, Objective, headline_metrics
from autoopt.report.elements.html import (
    charts,
    code,
    definitions,
    page,
    paragraphs,
    section,
    subsection,
    table_html,
    text_html,
)
from autoopt.report.elements.html import figure as figure_html
from autoopt.report.elements.table import Table
from autoopt.report.runs.charts import best_so_far, effects_chart, measurements_chart, trade_offs
from autoopt.report.runs.effects import FactorEffect, chain_levels, effects
from autoopt.report.runs.lineage import lineage_lines, lineage_table
from autoopt.report.runs.measurement import measured_lines, measured_tables
from autoopt.report.runs.operator_table import operator_table
from autoopt.report.runs.run import caveats, run_table, single_verdict, target_table, time_line, trials_line
from autoopt.report.runs.run_facts import ModelContent, RunFacts
from autoopt.report.words.change import estimate_text, ratio_change
from autoopt.report.words.failures import failure_groups, outcome_text, plain_reason
from autoopt.report.words.formatting import (
    ALL_MEASUREMENTS,
    FIRST_MEASUREMENT,
    constraint_text,
    objective_text,
    params_text,
    percent,
    plural,
    settings_text,
    short,
)
from autoopt.report.words.limits import figure_text, limits_of
from autoopt.report.words.markup import shell_word
from autoopt.report.words.verdict import lossy_steps, verdict, verdict_lines
from autoopt.results import ModelResult, PartResult, RunResult, TargetResult, Trial
from autoopt.results.figures import first_objective, is_quality, metrics_of, trial_estimate
from autoopt.results.operator_times import OperatorTimes

MOST_TILES = 4
PRINTED = 10
"""Number of trials on paper, as in `page.css`."""
SECTIONS = {
    "asked": "Asked",
    "found": "Found",
    "evidence": "Why to believe it",
    "effects": "What each pass and parameter gave",
    "lineage": "How the best model was made",
    "failures": "What failed",
    "trials": "Trials",
    "use": "Use it, and get it again",
}
"""Titles of the sections by id."""


def html_report(result: RunResult, trials: Sequence[Trial] = (), facts: RunFacts | None = None) -> str:
    """Render the page of a run. The trials of a run over several targets are in `facts.part_trials`."""
    facts = facts or RunFacts()
    title = f"{facts.name or 'run'} {short(result.run)}"
    titles = dict(SECTIONS)
    sections = {"asked": _asked(result, facts)}
    if not result.targets:
        sections = _search_sections(result, trials, facts)
    for number, part in enumerate(result.parts, start=1):
        titles[f"part-{number}"] = f"Model {part.name}"
        sections[f"part-{number}"] = _part(part, facts)
    for number, target in enumerate(result.targets, start=1):
        titles[f"target-{number}"] = f"Target {target.name}"
        sections[f"target-{number}"] = _target(result, target, facts.part_trials.get(target.result.run, ()))
    sections |= {"lineage": _lineage(facts.lineage, facts.models), "use": _use(result, facts)}
    present = [name for name in sorted(sections, key=_position) if sections[name]]
    links = " ".join(f'<a href="#{name}">{text_html(titles[name])}</a>' for name in present)
    bodies = [section(titles[name], sections[name], name) for name in present]
    return page(title, [_head(title, result, facts), f"<nav>{links}</nav>", *bodies])


def _position(name: str) -> int:
    """The place of a section on the page; sections of targets come before the lineage."""
    names = list(SECTIONS)
    return names.index(name if name in names else "effects")


def _search_sections(result: RunResult, trials: Sequence[Trial], facts: RunFacts) -> dict[str, str]:
    return {
        "asked": _asked(result, facts),
        "found": _found(result, trials, run_table(result)),
        "evidence": _evidence(result, facts),
        "effects": _effects(trials, first_objective(result)),
        "failures": _failures(trials),
        "trials": _trials(trials, result),
    }


def _head(title: str, result: RunResult, facts: RunFacts) -> str:
    answer, *others = [single_verdict(result)] if result.targets else verdict_lines(result)
    parts = [f"<h1>{text_html(title)}</h1>", f'<p class="headline">{text_html(answer)}</p>']
    if others:
        parts.append(paragraphs([" ".join(others)], "lead"))
    parts += [f'<p class="warning">{text_html(warning)}</p>' for warning in result.warnings]
    if result.better_model is not None:
        parts += [_tiles(result.better_model, result), _chain(result.better_model)]
    return "\n".join(parts)


def _tiles(best: ModelResult, result: RunResult) -> str:
    """Source and best model side by side, for the most important metrics."""
    tiles = []
    for name in metrics_of(result)[:MOST_TILES]:
        if name not in best.metrics or name not in result.baseline.metrics:
            continue
        limits = limits_of(name, result.constraints, result.baseline.metrics)
        before = figure_text(name, result.baseline.metrics[name], decimals=2)
        after = figure_text(name, best.metrics[name], 2, limits)
        tiles.append(
            f'<div class="tile"><span>{text_html(name)}</span><b>{text_html(f"{before} → {after}")}</b>'
            f"<span>{text_html(_change(name, best))}</span></div>"
        )
    return f'<div class="tiles">{"".join(tiles)}</div>'


def _change(metric: str, best: ModelResult) -> str:
    """The change of a metric; for a quality metric, the data that it was measured on."""
    if metric in best.ratios and not is_quality(metric):
        return ratio_change(metric, best.ratios[metric])
    if best.measured.identical_outputs:
        return "identical outputs"
    if is_quality(metric) and best.measured.items:
        return f"on {plural(best.measured.items, 'item')}"
    return ""


def _chain(best: ModelResult) -> str:
    """The passes of the best model with their searched parameters."""
    items = []
    for name in best.short_chain.split(" -> "):
        params = settings_text(best.point.get(name, {}))
        settings = f" <code>{text_html(params)}</code>" if params else ""
        items.append(f"<li>{text_html(name)}{settings}</li>")
    return f'<ol class="chain">{"".join(items)}</ol>'


def _asked(result: RunResult, facts: RunFacts) -> str:
    environment = facts.environment
    cpu = environment.get("cpu") or {}
    machine = [str(cpu.get("model", "")), plural(int(cpu["cores"]), "core") if cpu else "", environment.get("os", "")]
    runtime = (environment.get("libraries") or {}).get("onnxruntime", "")
    started = ""
    if facts.created:
        started = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(facts.created))
    return definitions(
        {
            "model": facts.model,
            "goal": ", then ".join(map(objective_text, result.objectives)),
            "constraints": "; ".join(map(constraint_text, result.constraints)),
            "evaluation data": facts.evaluation,
            "calibration data": facts.calibration,
            "passes": facts.dag,
            "search": settings_text(facts.search),
            "target": facts.target,
            "machine": ", ".join(filter(None, machine)),
            "runtime": f"onnxruntime {runtime}" if runtime else "",
            "started": started,
        }
    )


def _found(result: RunResult, trials: Sequence[Trial], table: Table) -> str:
    objective = first_objective(result)

    def draw() -> list[str]:
        figures = []
        for metric, chart in trade_offs(result, trials, links=True).items():
            caption = (
                f"{objective.metric} against {metric}, with 95 % intervals. "
                "Points beyond the edge are drawn at the edge. Click a point for its trial."
            )
            figures.append(figure_html(chart, caption))
        caption = f"{objective.metric} of each trial ({FIRST_MEASUREMENT}), and the best feasible one so far."
        figures.append(figure_html(best_so_far(trials, objective, links=True), caption, 260))
        return figures

    return f"{table_html(table)}\n{charts(draw)}"


def _evidence(result: RunResult, facts: RunFacts) -> str:
    best = result.best
    if best is None:
        return paragraphs([verdict(result)])
    lines = list(map(_as_sentence, (*measured_lines(best), *caveats(result))))
    measured, metric = best.measured, first_objective(result).metric
    if measured.pairs:
        counts = f"{plural(measured.pairs, 'pair')} of blocks, one of the source and one of the candidate in turns"
        lines.insert(0, f"Figures come from {counts}, in {plural(measured.rounds, 'measurement')}.")
    if result.undecided:
        lines.append(f"Not decided: {result.undecided}. Run the same command again to measure further.")
    elif not best.is_source and metric in STEADY_STATE:
        lines.append("The race between the best candidates was decided.")
    ratio = best.ratios.get(metric)

    def draw() -> list[str]:
        if ratio is None or len(facts.measurements) < 2:
            return []
        caption = (
            f"The best model's {metric} in each measurement, compared with the source, with its 95 % interval. "
            f"Band: the result of {ALL_MEASUREMENTS}."
        )
        return [figure_html(measurements_chart(metric, facts.measurements, ratio), caption, 240)]

    tables = "\n".join(map(table_html, measured_tables(best, outputs=True)))
    if facts.operator_times is not None:
        tables += _operator_section(facts.operator_times)
    notes = ""
    if result.other_notes:
        notes = f"<details><summary>Notes of the run</summary>{paragraphs(result.other_notes, 'small')}</details>"
    return "\n".join(filter(None, (paragraphs(lines), charts(draw), tables, notes)))


def _as_sentence(text: str) -> str:
    """`measured once` as `Measured once.`."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def _operator_section(times: OperatorTimes) -> str:
    note = (
        f"Profiled for this page on this machine, {plural(times.inferences, 'inference')} of each model in turns on "
        "one item; the profiler itself takes time. Operators are those that the runtime executes after its own "
        "fusions; one with a body (If, Loop, Scan) includes it."
    )
    return subsection("Where the time goes", table_html(operator_table(times)) + paragraphs([note], "small"))


def _effects(trials: Sequence[Trial], objective: Objective) -> str:
    chains = chain_levels(trials, objective)
    if not chains:
        return ""
    strongest = effects(trials, objective)

    def draw() -> list[str]:
        caption = (
            f"Share of the variation of {objective.metric} between trials that a pass (with or without it) or a "
            "parameter explains by itself. An estimate: trials differ in several things at once."
        )
        return [figure_html(effects_chart(strongest), caption, 60 + 26 * len(strongest))]

    rows = [(level.name, *_level_cells(level.trials, level.best, level.median, objective)) for level in chains]
    by_chain = Table(("chain", "trials", f"best {objective.metric}", "median"), tuple(rows), right=frozenset({1, 2, 3}))
    by_factor = subsection("By pass and parameter", table_html(_effects_table(strongest, objective)))
    parts = [charts(draw), f'<div class="screen">{by_factor}</div>']
    parts.append(subsection("By chain", table_html(by_chain, style="sortable")))
    return "\n".join(filter(None, parts))


def _effects_table(strongest: Sequence[FactorEffect], objective: Objective) -> Table:
    rows = []
    for effect in strongest:
        for number, level in enumerate(effect.levels):
            factor = "" if number else effect.factor
            rows.append((factor, level.name, *_level_cells(level.trials, level.best, level.median, objective)))
    columns = ("pass or parameter", "value", "trials", f"best {objective.metric}", "median")
    return Table(columns, tuple(rows), right=frozenset({2, 3, 4}))


def _level_cells(count: int, best: float, median: float, objective: Objective) -> tuple[str, ...]:
    figures = (estimate_text(objective.metric, Estimate.exact(value)) for value in (best, median))
    return (str(count), *figures)


def _failures(trials: Sequence[Trial]) -> str:
    rows = []
    for group in failure_groups(trials):
        numbers = ", ".join(str(trial.number) for trial in group.trials)
        rows.append((str(len(group.trials)), group.outcome, group.message, numbers))
    columns = ("trials", "outcome", "message of the first", "numbers")
    return table_html(Table(columns, tuple(rows), right=frozenset({0})))


def _trials(trials: Sequence[Trial], result: RunResult) -> str:
    if not trials:
        return ""
    rows = [f"trial-{trial.number}" for trial in trials]
    search = (
        '<p class="screen"><input type="search" aria-controls="all-trials" aria-label="Filter trials" '
        'placeholder="Filter, for example: static ok"></p>'
    )
    if len(trials) > PRINTED:
        search += f'<p class="print">The first {PRINTED} of {len(trials)} trials.</p>'
    table = table_html(trials_table(trials, result), identity="all-trials", style="sortable trials", row_ids=rows)
    return "\n".join((_origin_of_ratios(), search, table))


def _origin_of_ratios() -> str:
    text = f"Times of trials are from the {FIRST_MEASUREMENT} of each; those of the result are from {ALL_MEASUREMENTS}."
    return paragraphs([text], "small")


def trials_table(trials: Sequence[Trial], run: RunResult) -> Table:
    """Every trial: its chain and point, its outcome, its figures; the run's objectives and constraints come first."""
    quality: list[str] = []
    for trial in trials:
        quality += filter(is_quality, trial.result.metrics)
    metrics = list(dict.fromkeys([*headline_metrics(run.objectives, run.constraints), "size", *quality]))
    rows = []
    for trial in trials:
        result = trial.result
        figures = [estimate_text(name, trial_estimate(result, name)) for name in metrics]
        chain, params = trial.chain, params_text(result.point)
        time_text = f"{result.seconds:.2f} s"
        message = plain_reason(result.explanation)
        rows.append((str(trial.number), outcome_text(trial), *figures, chain, params, time_text, message))
    columns = ("trial", "outcome", *metrics, "chain", "parameters", "time", "message")
    if not any(row[-1] for row in rows):
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    right = frozenset({0, *range(2, 2 + len(metrics)), 4 + len(metrics)})
    return Table(columns, tuple(rows), right=right)


def _lineage(document: Mapping[str, Any], models: Mapping[str, ModelContent], part: str = "") -> str:
    """The steps as a row of boxes with their nodes and bytes, each linked to its row of the table below."""
    if not document.get("steps"):  # the source model stays
        return ""
    details = escape("\n".join(lineage_lines(document)))
    steps = lineage_table(document, models)
    ids = [f"step-{escape(part)}{number}" for number in range(len(steps.rows))]
    boxes = "".join(map(_step_box, ids, steps.rows))
    table = f'<ol class="chain screen">{boxes}</ol>\n{table_html(steps, row_ids=ids)}'
    return f"{table}\n<details><summary>Environment and reports of each step</summary><pre>{details}</pre></details>"


def _step_box(identity: str, cells: Sequence[str]) -> str:
    """A step of the lineage, from its row of the table."""
    _, name, nodes, size, *_ = cells
    figures = [f"{nodes} nodes" if nodes.isdecimal() else "", size.strip("-")]
    text = f'<a href="#{identity}">{text_html(name)}</a>'
    return f'<li>{text} <span class="muted small">{", ".join(filter(None, figures))}</span></li>'


def _use(result: RunResult, facts: RunFacts) -> str:
    parts = []
    if result.better_model is not None:
        parts.append(subsection("See the gain on this machine", code("python out/run.py")))
        text = 'import autoopt\n\nsession = autoopt.load("out")  # an onnxruntime.InferenceSession, as it was measured'
        replay = f"autoopt replay out/recipe.json --model {shell_word(facts.model or 'model.onnx')}"
        if result.parts:
            text = 'import autoopt\n\nsession = autoopt.load("out")  # run() runs all models together'
            recipes = [shell_word(f"out/{part.name}/recipe.json") for part in result.parts]
            replay = "\n".join(f"autoopt replay {recipe} --model MODEL" for recipe in recipes)
        parts.append(subsection("Use the model in a program", code(text)))
        parts.append(subsection("Make the same model again from its recipe", code(replay)))
    if result.best_lossy is not None:
        parts.append(subsection("The lossy model", paragraphs(lossy_steps(result))))
    commands = f"autoopt best {short(result.run)}\nautoopt lineage {short(result.run)}"
    parts.append(subsection("Look it up in the store", code(commands)))
    return "\n".join([*parts, paragraphs([trials_line(result), time_line(result)], "muted small")])


def _part(part: PartResult, facts: RunFacts) -> str:
    """The sections of one model of a set below one heading."""
    trials = facts.part_trials.get(part.result.run, ())
    chosen = part.model.short_chain
    lead = f"{percent(part.share)} of the time of a whole inference. Chosen: {chosen}. {verdict(part.result)}"
    sections = _search_sections(part.result, trials, RunFacts())
    parts = [paragraphs([lead]), sections.pop("found")]
    parts += [subsection(SECTIONS[name], text) for name, text in sections.items() if text and name != "asked"]
    lineage = _lineage(facts.part_lineages.get(part.name, {}), facts.models, f"{part.name}-")
    if lineage:
        parts.append(subsection("How the chosen model was made", lineage))
    return "\n".join(filter(None, parts))


def _target(result: RunResult, target: TargetResult, trials: Sequence[Trial]) -> str:
    """The sections of one target below one heading."""
    objective = first_objective(result)
    parts = [paragraphs([verdict(target.result)]), _found(target.result, trials, target_table(result, target))]
    parts.append(subsection(SECTIONS["evidence"], _evidence(target.result, RunFacts())))
    parts.append(subsection(SECTIONS["effects"], _effects(trials, objective)))
    parts.append(subsection(SECTIONS["failures"], _failures(trials)))
    if trials:
        parts.append(subsection(SECTIONS["trials"], table_html(trials_table(trials, result), style="sortable trials")))
    return "\n".join(filter(None, parts))
