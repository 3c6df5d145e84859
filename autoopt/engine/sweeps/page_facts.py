"""Facts for the page of a sweep beside its result: the chains of each model, and the nights before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autoopt.metrics import Estimate, is_ratio_metric
from autoopt.report.figures import first_objective
from autoopt.report.sweep_comparison import EarlierEntry
from autoopt.report.sweep_page import NightRatio, SweepFacts
from autoopt.results import SweepEntry, Trial
from autoopt.store import Store
from autoopt.store.finished import finished_trials


def sweep_facts(
    store: Store, sweep: str, entries: Sequence[SweepEntry], earlier: Mapping[str, Sequence[EarlierEntry]]
) -> SweepFacts:
    """Look up the trials and the earlier sweeps of the models that minimize a metric with a ratio.

    Args:
        store: The store.
        sweep: Id of the sweep.
        entries: Its models.
        earlier: The good entries of earlier sweeps by the model's name, newest first.
    """
    chains, nights = {}, {}
    for entry in entries:
        if entry.result is None:
            continue
        objective = first_objective(entry.result)
        if objective.goal == "minimize" and is_ratio_metric(objective.metric):
            chains[entry.name] = _best_by_chain(finished_trials(store, entry.run), objective.metric)
            before = [(one.sweep, one.entry) for one in earlier[entry.name] if not one.release]
            sweeps = [*reversed(before), (sweep, entry)]
            nights[entry.name] = _nights(store, sweeps, objective.metric)
    return SweepFacts(chains, nights)


def _best_by_chain(trials: Sequence[Trial], metric: str) -> dict[str, Estimate]:
    """The lowest ratio of the feasible trials of each chain."""
    best: dict[str, Estimate] = {}
    for trial in trials:
        ratio = trial.result.ratios.get(metric)
        if ratio is not None and trial.feasible and (trial.chain not in best or ratio.value < best[trial.chain].value):
            best[trial.chain] = ratio
    return best


def _nights(store: Store, sweeps: Sequence[tuple[str, SweepEntry]], metric: str) -> list[NightRatio]:
    nights = []
    for sweep, entry in sweeps:
        if entry.best is not None and metric in entry.best.ratios:
            nights.append(NightRatio(store.sweeps.get(sweep).created, entry.best.ratios[metric], entry.run, metric))
    return nights
