"""The causes of what a night found: models that became slower are bisected, within the night's budget.

Ratios to the source do not show a version of the runtime that makes the source slower as well. Where that version has
changed, the best model is therefore measured beside the earlier night's, too.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from autoopt.engine.sweeps.bisection.factors import changes_between
from autoopt.engine.sweeps.request import SweepRequest
from autoopt.errors import AutooptError
from autoopt.metrics import Estimate, latency_objective
from autoopt.report.nights.night_history import RELEVANT
from autoopt.report.sweeps.bisection import sentence
from autoopt.report.sweeps.sweep_comparison import EarlierEntry
from autoopt.report.words.figures import kind
from autoopt.results import MetricChange, SweepEntry
from autoopt.results.bisection import Bisection
from autoopt.results.sweep import BESIDE, OK
from autoopt.store import Store

RUNTIME: Final = "onnxruntime"


@dataclass
class Causes:
    """Bisects models of a night until its budget is spent."""

    request: SweepRequest
    store: Store
    zoo: str
    """Name of the zoo."""
    sweep: str
    """Id of the night's sweep."""
    _seconds: float = field(default=0.0, init=False)
    """Time spent so far."""

    def explain(self, entries: Sequence[SweepEntry], earlier: Mapping[str, Sequence[EarlierEntry]]) -> list[SweepEntry]:
        """Return the entries with what bisections found.

        Regressions come first, then models whose runtime has another version: those whose latency rose most first. One
        of these that is proven slower is a regression, too.
        """
        explained = {entry.name: entry for entry in entries}
        for entry in [*filter(_is_slower, entries), *_on_another_runtime(entries, earlier)]:
            bisection = self._bisect(entry)
            if bisection is None:
                continue
            judged = _judged(entry, bisection)
            if judged.compared.regressed:  # that the others are as fast stands in the log
                explained[entry.name] = replace(judged, bisection=bisection)
            if judged is not entry:
                self.request.observer.on_model_end(explained[entry.name])
        return list(explained.values())

    def _bisect(self, entry: SweepEntry) -> Bisection | None:
        """Bisect a model; None if it has been, or cannot be, or the budget is spent."""
        # Imported here: it imports numpy, and most nights have nothing to bisect.
        from autoopt.engine.sweeps.bisection.bisect import bisect_entry, reference_of
        from autoopt.engine.sweeps.bisection.variants import Budget

        request = self.request
        minutes = request.bisect_minutes - self._seconds / 60
        if entry.bisection is not None or minutes <= 0:
            return None
        request.observer.on_phase(f"bisecting {entry.name}")
        budget = Budget(minutes, request.home, request.db_url, request.observer)
        began = time.monotonic()
        try:
            reference = reference_of(self.store, self.zoo, entry)
            bisection = bisect_entry(self.store, self.sweep, entry, reference, budget)
        except AutooptError as error:
            request.observer.on_note(f"{entry.name}: not bisected: {error}")
            return None
        finally:
            self._seconds += time.monotonic() - began
        request.observer.on_note(sentence(bisection))
        return bisection


def _is_slower(entry: SweepEntry) -> bool:
    """True if the verdict on a model is worse, and one of its latencies is."""
    worse = [change.metric for change in entry.compared.changes if change.verdict == "worse"]
    return entry.compared.verdict == "worse" and "latency" in map(kind, worse)


def _on_another_runtime(
    entries: Sequence[SweepEntry], earlier: Mapping[str, Sequence[EarlierEntry]]
) -> list[SweepEntry]:
    """Models that did not regress, on another version of the runtime than before; the largest rise of latency first."""
    rises: dict[str, float] = {}
    for entry in entries:
        if entry.status != OK or entry.compared.regressed or not earlier.get(entry.name):
            continue
        before = earlier[entry.name][0].entry
        changed = [factor.name for factor in changes_between(before, entry).libraries]
        rise = _rise(before, entry)
        if RUNTIME in changed and rise is not None:
            rises[entry.name] = rise
    return sorted((entry for entry in entries if entry.name in rises), key=lambda entry: -rises[entry.name])


def _rise(before: SweepEntry, after: SweepEntry) -> float | None:
    """The best model's latency relative to the earlier night's; None where it is no objective or was not measured."""
    metric = _latency(after)
    if metric is None or before.best is None or after.best is None:
        return None
    old, new = before.best.metrics.get(metric), after.best.metrics.get(metric)
    return new / old if old and new else None


def _latency(entry: SweepEntry) -> str | None:
    """The latency among a model's objectives."""
    return latency_objective(entry.result.objectives) if entry.result is not None else None


def _judged(entry: SweepEntry, bisection: Bisection) -> SweepEntry:
    """The entry as a regression if the bisection proves that the model is slower than on the earlier night."""
    total, metric = bisection.total, _latency(entry)
    if entry.compared.regressed or metric is None or total is None or total.ratio is None:
        return entry
    ratio = total.ratio
    if not ratio.excludes_one or ratio.value < 1 + RELEVANT:
        return entry
    change = MetricChange(BESIDE, metric, Estimate.exact(1.0), ratio, True, "worse")
    causes = tuple(f"libraries.{factor.text}" for factor in bisection.factors if factor.name in bisection.cause)
    compared = replace(entry.compared, verdict="worse", changes=(change, *entry.compared.changes), causes=causes)
    return replace(entry, compared=compared)
