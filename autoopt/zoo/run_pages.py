"""The pages of a sweep's runs in a folder beside the page of the sweep, and facts for that page."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from autoopt.engine.tools.run_report import run_report
from autoopt.errors import writing
from autoopt.metrics import Estimate, is_ratio_metric
from autoopt.report.pages import write_page
from autoopt.results import RunResult, SweepEntry, Trial
from autoopt.results.figures import first_objective
from autoopt.store import Store
from autoopt.store.finished import finished_trials
from autoopt.zoo.sweep_comparison import EarlierEntry
from autoopt.zoo.sweep_page import NightRatio, SweepFacts

FOLDER = "reports"
MOST_PAGES = 100
"""Pages that one sweep adds; each takes 0.4 s of CPU and 80 kB. `autoopt report RUN` writes any other."""
KEPT_PAGES = 1000
"""Pages of runs of earlier sweeps that stay: about 80 MB."""
RUN_ID: Final = re.compile("[0-9a-f]{12}")


def sweep_facts(
    store: Store, sweep: str, entries: Sequence[SweepEntry], earlier: Mapping[str, Sequence[EarlierEntry]]
) -> SweepFacts:
    """Look up the trials and the earlier sweeps of the models that minimize a metric with a ratio.

    `earlier` holds the good entries of earlier sweeps by the model's name, newest first.
    """
    begun = cache(lambda sweep: store.sweeps.get(sweep).created)
    chains, nights = {}, {}
    for entry in entries:
        if entry.result is None:
            continue
        objective = first_objective(entry.result)
        if objective.goal == "minimize" and is_ratio_metric(objective.metric):
            chains[entry.name] = _best_by_chain(finished_trials(store, entry.run), objective.metric)
            before = [(one.sweep, one.entry) for one in earlier[entry.name] if not one.release]
            sweeps = [*reversed(before), (sweep, entry)]
            nights[entry.name] = _nights(begun, sweeps, objective.metric)
    return SweepFacts(chains, nights, time=begun(sweep))


def _best_by_chain(trials: Sequence[Trial], metric: str) -> dict[str, Estimate]:
    """The lowest ratio of the feasible trials of each chain."""
    best: dict[str, Estimate] = {}
    for trial in trials:
        ratio = trial.ratios.get(metric)
        if ratio is not None and trial.feasible and (trial.chain not in best or ratio.value < best[trial.chain].value):
            best[trial.chain] = ratio
    return best


def _nights(begun: Callable[[str], float], sweeps: Sequence[tuple[str, SweepEntry]], metric: str) -> list[NightRatio]:
    nights = []
    for sweep, entry in sweeps:
        if entry.best is not None and metric in entry.best.ratios:
            nights.append(NightRatio(begun(sweep), entry.best.ratios[metric], entry.run, metric))
    return nights


def write_run_pages(store: Store, entries: Sequence[SweepEntry], out: Path) -> dict[str, str]:
    """Write the pages of runs that have none yet in `out`: at most `MOST_PAGES`, of changed models before others.

    Then delete the oldest pages of earlier sweeps beyond `KEPT_PAGES`.

    Returns:
        The path of each page there, relative to `out`, by the run's id.

    Raises:
        InputError: The folder cannot be written.
    """
    folder = out / FOLDER
    with writing(folder, "cannot write the reports"):
        folder.mkdir(parents=True, exist_ok=True)
        new = [entry for entry in entries if entry.run and not (folder / f"{entry.run}.html").exists()]
        new.sort(key=lambda entry: not (entry.compared.regressed or entry.compared.improved))
        for entry in new[:MOST_PAGES]:
            record = store.runs.get(entry.run)
            if record.result:
                page = run_report(store, record, RunResult.from_json(record.result))
                write_page(folder / f"{entry.run}.html", page)
        _prune(folder, {entry.run for entry in entries})
        return {page.stem: f"{FOLDER}/{page.name}" for page in folder.glob("*.html")}


def _prune(folder: Path, in_use: Collection[str]) -> None:
    """Delete the oldest pages of runs that are not in use, so that years of nights do not fill the disk."""
    others = [page for page in folder.glob("*.html") if page.stem not in in_use and RUN_ID.fullmatch(page.stem)]
    others.sort(key=lambda page: page.stat().st_mtime)
    for page in others[:-KEPT_PAGES]:
        page.unlink()
