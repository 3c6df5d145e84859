"""What flow runs show of a run: tables, plots, ids to look up. The store is the truth, these are pictures of it."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from prefect.artifacts import create_image_artifact, create_markdown_artifact, create_table_artifact

from autoopt.orchestrate.server.outages import best_effort
from autoopt.report.document import RunDocument, Trial
from autoopt.report.html import best_so_far, trade_off
from autoopt.report.svg import picture
from autoopt.report.words import params_text, ratio_text
from autoopt.results import RunResult
from autoopt.store import Store, TrialRecord

ROWS = 200
"""A table shows at most so many trials; the store has them all."""


@best_effort
def show_chain(store: Store, run: str, chain: str) -> None:
    """The trials of a chain that are done: a table, a plot of the best so far, and one of its Pareto front."""
    rows = [row for row in store.trials.all(run) if row.chain == chain and row.status == "done"]
    if not rows:
        return
    described = f"Trials of run {run}; autoopt lineage and apply take the artifacts' ids"
    _make(create_table_artifact, key="trials", table=[_row(row) for row in rows[:ROWS]], description=described)
    trials = _trials(rows, {c.id: c.name for c in store.runs.chains(run)})
    _image("best-so-far", picture(best_so_far(trials)), "Latency ratio of each trial, and the best so far")
    document = RunDocument.from_json({"run": run, "pareto": _front(trials)})
    _image("pareto", picture(trade_off(document, trials, "size")), "Latency and size ratios; the front stands out")


def _front(trials: Sequence[Trial]) -> list[dict[str, Any]]:
    """The feasible trials that no other one beats in both latency and size."""
    axes = ("latency_p50", "size")
    whole = [t for t in trials if t.feasible and all(name in t.ratios for name in axes)]
    at = {t.number: tuple(t.ratios[name].value for name in axes) for t in whole}

    def beaten(mine: tuple[float, ...]) -> bool:
        return any(other != mine and all(o <= m for o, m in zip(other, mine, strict=True)) for other in at.values())

    front = [t for t in whole if not beaten(at[t.number])]
    return [{"chain": t.chain, "ratios": {name: vars(ratio) for name, ratio in t.ratios.items()}} for t in front]


@best_effort
def show_result(store: Store, result: RunResult) -> None:
    """What a run found: its best model and front, the best so far, and what was traded."""
    names = {chain.id: chain.name for chain in store.runs.chains(result.run)}
    trials = _trials([t for t in store.trials.all(result.run) if t.status == "done"], names)
    document = RunDocument.from_json(result.to_json())
    _make(create_markdown_artifact, key="result", markdown=result_markdown(result), description="What the run found")
    _image("best-so-far", picture(best_so_far(trials)), "Latency ratio of each trial, and the best so far")
    _image("pareto", picture(trade_off(document, trials, "size")), "Latency and size ratios; the front stands out")


def result_markdown(result: RunResult) -> str:
    """A run's best model and Pareto front, with what to look up in the store."""
    lines = ["| model | chain | latency | size |", "|---|---|---|---|"]
    for label, choice in [("best", result.best), *(("front", c) for c in result.pareto)]:
        if choice is not None:
            ratios = [choice.ratios.get(m) for m in ("latency_p50", "size")]
            shown = [ratio_text(r) if r else "" for r in ratios]
            lines.append(f"| {label} `{choice.artifact[:12]}` | {choice.chain} | {shown[0]} | {shown[1]} |")
    where = f"`autoopt best {result.run}`, `autoopt report {result.run}`"
    return "\n".join([f"Run `{result.run}`: {result.status}; {where}", "", *lines])


def _row(row: TrialRecord) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "trial": row.number,
        "parameters": params_text(row.point),
        "outcome": str(row.outcome or row.status),
        "feasible": row.violation <= 0,
    }
    for name in ("latency_p50", "size"):
        shown[f"{name} ratio"] = round(row.ratios[name].value, 4) if name in row.ratios else ""
    shown["artifact"] = row.candidate.artifact[:12] if row.candidate else ""
    shown["said"] = row.message
    return shown


def _trials(rows: Sequence[TrialRecord], names: dict[str, str]) -> list[Trial]:
    return [
        Trial(
            number=row.number,
            chain=names.get(row.chain, row.chain),
            point=row.point,
            outcome=str(row.outcome or ""),
            metrics={name: value.value for name, value in row.metrics.items()},
            ratios=row.ratios,
            violation=row.violation,
            message=row.message,
            seconds=row.seconds,
        )
        for row in rows
    ]


def _image(key: str, svg: str, description: str) -> None:
    if svg:
        data = base64.b64encode(svg.encode()).decode()
        url = f"data:image/svg+xml;base64,{data}"
        _make(create_image_artifact, key=key, image_url=url, description=description)


def _make(create: Any, **values: Any) -> None:
    """Create an artifact now, also in a thread of an asynchronous flow, where Prefect would give back a coroutine."""
    create(**values, _sync=True)
