"""The result of a run: a table of the source model, the best one and the Pareto front, and what it took."""

from __future__ import annotations

from dataclasses import replace
from typing import TextIO

from autoopt.errors import one_line
from autoopt.metrics import Estimate
from autoopt.report.document import SOURCE, Model, RunDocument, Target, kind
from autoopt.report.measured import measured_lines, measured_tables
from autoopt.report.table import Table, write_lines, write_table
from autoopt.report.words import counts_text, metric_text, params_text, ratio_text, seconds_text, short

RATIO_KINDS = ("latency", "size", "memory")
"""Kinds of metrics that are shown as ratios too."""
BEGINNING = ("cold_start", "first_inference")
"""Latencies that say nothing of how fast a model is."""


def write_run(document: RunDocument, stream: TextIO) -> None:
    """Write the whole result for people."""
    for target in document.targets:
        for table in (target_table(document, target), *measured_tables(target.document.best)):
            write_table(table, stream)
    if not document.targets:
        for table in (run_table(document), *measured_tables(document.best)):
            write_table(table, stream)
    write_lines(summary(document), stream)


def target_table(document: RunDocument, target: Target) -> Table:
    """The table of one of several targets: its own models, and below them the best single one where it is another."""
    own = replace(target.document, asked=document.asked)
    single = document.single.models.get(target.name) if document.single else None
    if single is not None and single.chain != SOURCE and single.key not in {m.key for m in own.models}:
        own = replace(own, front=(*own.front, single))
    return run_table(own, title=f"target {target.name}: {target.words}")


def run_table(document: RunDocument, title: str = "") -> Table:
    """One row each for source, best and the rest of the front; every metric, with its ratio where it has one."""
    best, models, metrics = document.best, document.models, document.metrics
    with_ratio = {name for name in metrics if kind(name) in RATIO_KINDS and any(name in m.ratios for m in models)}
    columns = ["model"]
    for name in metrics:
        columns += [name, "ratio"] if name in with_ratio else [name]
    rows = tuple((_label(m), *_cells(m, metrics, with_ratio), chain_text(m)) for m in models)
    return Table(
        columns=(*columns, "chain and its parameters"),
        rows=rows,
        title=title or f"run {short(document.run)}: {document.status}",
        right=frozenset(range(1, len(columns))),
        strong=None if best is None else int(best.chain != SOURCE),
    )


def _cells(model: Model, metrics: tuple[str, ...], with_ratio: set[str]) -> list[str]:
    cells: list[str] = []
    for name in metrics:
        cells.append(metric_text(name, model.metrics[name]) if name in model.metrics else "-")
        if name in with_ratio:
            own = Estimate.exact(1.0) if model.chain == SOURCE else model.ratios.get(name)
            cells.append(ratio_text(own) if own else "-")
    return cells


def _label(model: Model) -> str:
    if model.chain == SOURCE or not model.artifact:
        return model.label
    return f"{model.label} {short(model.artifact)[:8]}"


def chain_text(model: Model) -> str:
    """`simplify -> static [static: per_channel=true] *`: the searched parameters; a star where there are flags."""
    params = params_text(model.point)
    text = f"{model.chain} [{params}]" if params else model.chain
    return f"{text} *" if model.flags else text


def summary(document: RunDocument) -> list[str]:
    """What the run did, in a few lines."""
    shown = document.models if not document.targets else [m for t in document.targets for m in t.document.models]
    flagged: dict[str, list[str]] = {}
    for model in shown:
        if model.flags:
            flagged.setdefault(one_line("; ".join(model.flags)), []).append(_label(model))
    lines = [f"* {', '.join(labels)}: {flags}" for flags, labels in flagged.items()]
    lines += [f"note: {one_line(note)}" for note in document.notes]
    work = [
        f"{name} {document_part.get('executed', 0)} executed, {document_part.get('reused', 0)} reused"
        for name, document_part in (("pass runs", document.pass_runs), ("evaluations", document.evaluations))
    ]
    ended = f" ({document.stopped})" if document.stopped else ""
    lines.append(f"trials {counts_text(document.trials)}{ended}; {'; '.join(work)}")
    lines.append(f"time {seconds_text(document.seconds)}")
    if document.reused:
        lines.append("answered from the store: an identical run had finished; nothing was executed")
    for target in document.targets:
        lines += [f"target {target.name}: {line}" for line in measured_lines(target.document.best)]
        lines.append(f"target {target.name}: {verdict(target.document)}{_made(target)}")
    lines += [] if document.targets else measured_lines(document.best)
    lines.append(verdict_of_all(document) if document.targets else verdict(document))
    return lines


def _made(target: Target) -> str:
    best = target.document.best
    other = target.made_on != target.name and best is not None and best.chain != SOURCE
    return f" (found by the search for {target.made_on})" if other else ""


def verdict_of_all(document: RunDocument) -> str:
    """The answer for all targets in one sentence."""
    single = document.single
    if single is None:
        return "best single model: none meets the constraints on all targets"
    first = next(iter(single.models.values()))
    each = [f"{n} {ratio_text(m.ratios[single.metric])}" for n, m in single.models.items() if single.metric in m.ratios]
    if first.chain == SOURCE:
        return "best single model: the source; no chain gained anything over all targets within the constraints"
    whole = ratio_text(single.value) if "ratios" in single.how else metric_text(single.metric, single.value.value)
    return ", ".join([f"best single model: {first.chain}", f"{single.metric} {whole} ({single.how})", *each])


def verdict(document: RunDocument) -> str:
    """The answer in one sentence."""
    best = document.best
    if best is None:
        return "no model meets the constraints"
    if best.chain == SOURCE:
        return "the source model is the best: no chain gained anything within the constraints"
    ratios = {n: best.ratios[n] for n in document.metrics if n in best.ratios and kind(n) in RATIO_KINDS}
    gains = [f"{name} {ratio_text(ratio)}" for name, ratio in ratios.items()]
    speed = next((r for n, r in ratios.items() if kind(n) == "latency" and n not in BEGINNING), None)
    if speed is not None and speed.value > 0 and speed.high < 0.95:
        gains.append(f"{1 / speed.value:.1f} times as fast")
    return ", ".join([f"best: {best.chain}", *gains])
