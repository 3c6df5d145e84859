"""The pages of a sweep's runs in a folder beside the page of the sweep, and facts for that page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from autoopt.engine.tools.run_report import run_report
from autoopt.errors import writing
from autoopt.metrics import Estimate, is_ratio_metric
from autoopt.report.figures import first_objective
from autoopt.report.html import write_page
from autoopt.report.sweep_comparison import EarlierEntry
from autoopt.report.sweep_page import NightRatio, SweepFacts
from autoopt.results import RunResult, SweepEntry, Trial
from autoopt.store import Store
from autoopt.store.finished import finished_trials

FOLDER = "reports"


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
        ratio = trial.result.ratios.get(metric)
        if ratio is not None and trial.feasible and (trial.chain not in best or ratio.value < best[trial.chain].value):
            best[trial.chain] = ratio
    return best


def _nights(begun: Callable[[str], float], sweeps: Sequence[tuple[str, SweepEntry]], metric: str) -> list[NightRatio]:
    nights = []
    for sweep, entry in sweeps:
        if entry.best is not None and metric in entry.best.ratios:
            nights.append(NightRatio(begun(sweep), entry.best.ratios[metric], entry.run, metric))
    return nights


def write_run_pages(store: Store, entries: Iterable[SweepEntry], out: Path) -> dict[str, str]:
    """Write the page of each run that has none yet in `out`.

    Returns:
        The path of each page there, relative to `out`, by the run's id.

    Raises:
        InputError: The folder cannot be written.
    """
    folder = out / FOLDER
    with writing(folder, "cannot write the reports"):
        folder.mkdir(parents=True, exist_ok=True)
        for entry in entries:
            page = folder / f"{entry.run}.html"
            if not entry.run or page.exists():
                continue
            record = store.runs.get(entry.run)
            if record.result is not None:
                write_page(page, run_report(store, record, RunResult.from_json(record.result)))
        return {page.stem: f"{FOLDER}/{page.name}" for page in folder.glob("*.html")}
