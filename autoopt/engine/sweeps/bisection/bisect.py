"""Find out by measuring what made the best model of one night slower or faster than that of an earlier night."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Final

from autoopt.engine.sweeps.bisection.environments import Environments
from autoopt.engine.sweeps.bisection.factors import changes_between
from autoopt.engine.sweeps.bisection.timing import Stopwatch
from autoopt.engine.sweeps.bisection.variants import Budget, NightModel, NotMade, VariantModel, Variants
from autoopt.engine.sweeps.releases import release_histories
from autoopt.errors import InputError
from autoopt.metrics import Estimate
from autoopt.report.sweeps.sweep_comparison import EarlierEntry
from autoopt.results import SweepEntry, SweepResult
from autoopt.results.bisection import Bisection, OperatorDifference, Variant
from autoopt.results.model import SOURCE
from autoopt.store import Store
from autoopt.working_folder import STORE_WORK, working_folder

MOST_PAIRS: Final = 6
"""Pairs that are measured if no single factor explains the change."""
SAME: Final = "the same model in the same runtime as on the earlier night"


def bisect(store: Store, sweep: str, model: str, budget: Budget) -> Bisection:
    """Bisect a model of a sweep and keep the outcome in the sweep's result.

    `sweep` is the id of a sweep, the beginning of one, or `latest`.

    Raises:
        InputError: There is no such sweep or model, or nothing to compare it with.
        SystemFailure: An earlier version of a library cannot be installed, or the earlier model does not run here.
    """
    record = store.sweeps.get(sweep)
    if not record.result:
        raise InputError(f"sweep {record.id} has not finished", where="SWEEP", remedy="name another one")
    result = SweepResult.from_json(record.result)
    entry = _entry_named(result, model)
    earlier = reference_of(store, record.name, entry)
    bisection = bisect_entry(store, record.id, entry, earlier, budget)
    models = [replace(one, bisection=bisection) if one.name == model else one for one in result.models]
    store.sweeps.finish(record.id, record.status, replace(result, models=tuple(models)).to_json())
    return bisection


def bisect_entry(store: Store, sweep: str, entry: SweepEntry, earlier: EarlierEntry, budget: Budget) -> Bisection:
    """Bisect the entry of a model against an earlier one; errors as of `bisect`.

    Where the model is as fast as before although the entry regressed, its source is compared, too.
    """
    began = time.monotonic()
    before, after = NightModel.of(store, earlier.sweep, earlier.entry), NightModel.of(store, sweep, entry)
    with working_folder(store.home / STORE_WORK) as scratch:
        variants = Variants(
            store=store,
            before=before,
            after=after,
            changes=changes_between(earlier.entry, entry),
            scratch=scratch,
            environments=Environments(store.home),
            budget=budget,
            until=began + 60 * budget.minutes,
        )
        budget.observer.on_phase(f"measuring {entry.name} of both nights in turns")
        stopwatch = Stopwatch.of(before.run, scratch)
        outcome = CauseSearch(variants, stopwatch).run(variants.until)
        source = None
        if outcome.is_unchanged and entry.compared.regressed:
            source = _source_ratio(variants, stopwatch)
    return Bisection(
        model=entry.name,
        sweep=sweep,
        before=earlier.sweep,
        factors=variants.factors,
        not_varied=variants.changes.not_varied,
        variants=outcome.variants,
        cause=outcome.cause,
        source=source,
        operators=outcome.operators,
        busy=outcome.busy,
        seconds=round(time.monotonic() - began, 3),
    )


def _source_ratio(variants: Variants, stopwatch: Stopwatch) -> Estimate | None:
    """The latency of the source relative to the earlier night's; None if the two are the same."""
    old, new = variants.source(variants.before), variants.source(variants.after)
    if new.same_as(old):
        return None
    return stopwatch.compare(old, {SOURCE: new}, variants.until).ratios.get(SOURCE)


def _entry_named(result: SweepResult, model: str) -> SweepEntry:
    for entry in result.models:
        if entry.name == model:
            return entry
    remedy = f"it has: {', '.join(entry.name for entry in result.models) or 'no model'}"
    raise InputError(f"sweep {result.sweep} has no model {model!r}", where="MODEL", remedy=remedy)


def reference_of(store: Store, zoo: str, entry: SweepEntry) -> EarlierEntry:
    """Find the release or the earlier sweep that an entry of this zoo was compared with.

    Raises:
        InputError: It was compared with none, or that sweep no longer has the model.
    """
    compared = entry.compared
    if compared.release:
        release = release_histories(store, zoo)[entry.name].promoted[compared.release]
        return EarlierEntry(release.sweep, release.entry, release.number)
    if not compared.sweep:
        reason = f"{entry.name} is new in this sweep: there is no earlier night to compare it with"
        raise InputError(reason, where="MODEL", remedy="name a later sweep, see 'autoopt nights'")
    earlier = SweepResult.from_json(store.sweeps.get(compared.sweep).result)
    for candidate in earlier.models:
        if (candidate.listed, candidate.called) == (entry.listed, entry.called) or candidate.name == entry.name:
            return EarlierEntry(earlier.sweep, candidate)
    raise InputError(f"sweep {compared.sweep} no longer has {entry.name}", where="MODEL")


@dataclass(frozen=True)
class BisectionOutcome:
    """The outcome of a search; see `Bisection`."""

    variants: tuple[Variant, ...]
    cause: tuple[str, ...] = ()
    operators: tuple[OperatorDifference, ...] = ()
    busy: bool = False

    @property
    def is_unchanged(self) -> bool:
        """True if the later night's model was measured and is as fast as the earlier one's."""
        total = self.variants[0].ratio
        return total is not None and not total.excludes_one


@dataclass
class CauseSearch:
    """The search for the factor, or the pair of factors, that explains the whole change."""

    models: Variants
    timer: Stopwatch
    _measured: dict[frozenset[str], Variant] = field(default_factory=dict)
    _busy: bool = False

    def run(self, until: float) -> BisectionOutcome:
        """Measure the later night and each factor alone, then pairs if no factor explains it.

        `until` is the end of the budget on `time.monotonic`.
        """
        names = [factor.name for factor in self.models.factors]
        every = frozenset(names)
        tried = [every, *(frozenset({name}) for name in names)]
        self._measure(tried, until)
        cause = self._explanation(every, tried[1:])
        if not cause and self._is_changed(every):
            cause = every
            if len(names) > 2:  # the only pair of two factors is the later night itself
                pairs = self._likely_pairs(tried[1:])
                self._measure(pairs, until)
                cause = self._explanation(every, pairs)
                tried += pairs
        variants = tuple(self._measured[changed] for changed in dict.fromkeys(tried))
        if not cause:
            return BisectionOutcome(variants, busy=self._busy)
        operators = self.timer.profiles(self.models.model(frozenset()), self.models.model(every))
        return BisectionOutcome(variants, tuple(name for name in names if name in cause), operators, self._busy)

    def _is_changed(self, every: frozenset[str]) -> bool:
        total = self._measured[every].ratio
        return total is not None and total.excludes_one

    def _explanation(self, every: frozenset[str], candidates: Sequence[frozenset[str]]) -> frozenset[str]:
        """The candidate that explains the whole change; empty if there is no change or none does."""
        total = self._measured[every].ratio
        if total is None or not total.excludes_one:
            return frozenset()
        return closest(total, self._ratios(candidates))

    def _measure(self, wanted: Iterable[frozenset[str]], until: float) -> None:
        """Measure combinations in turns; those that equal another one share its figures."""
        reference = self.models.model(frozenset())
        models: dict[frozenset[str], VariantModel] = {}
        twins: dict[frozenset[str], frozenset[str]] = {}
        for changed in dict.fromkeys(wanted):
            model = self._made(changed)
            if model is None:
                continue
            if model.same_as(reference):
                self._measured[changed] = Variant(tuple(sorted(changed)), Estimate.exact(1.0), SAME)
                continue
            twin = next((one for one, other in models.items() if model.same_as(other)), None)
            if twin is None:
                models[changed] = model
            else:
                twins[changed] = twin
        if models:
            self._time(reference, models, until)
        for changed, twin in twins.items():
            self._measured[changed] = replace(self._measured[twin], changed=tuple(sorted(changed)))

    def _made(self, changed: frozenset[str]) -> VariantModel | None:
        try:
            return self.models.model(changed)
        except NotMade as error:
            self._measured[changed] = Variant(tuple(sorted(changed)), reason=str(error))
            return None

    def _time(self, reference: VariantModel, models: Mapping[frozenset[str], VariantModel], until: float) -> None:
        names = {" + ".join(sorted(changed)): changed for changed in models}
        others = {name: models[changed] for name, changed in names.items()}
        timed = self.timer.compare(reference, others, until)
        self._busy = self._busy or timed.busy
        for name, changed in names.items():
            reason = timed.failures.get(name, "")
            if reason:
                reason = f"does not run: {reason}"
            self._measured[changed] = Variant(tuple(sorted(changed)), timed.ratios.get(name), reason)

    def _ratios(self, combinations_: Sequence[frozenset[str]]) -> dict[frozenset[str], Estimate]:
        """The measured ratios of these combinations."""
        ratios = {}
        for changed in combinations_:
            ratio = self._measured[changed].ratio
            if ratio is not None:
                ratios[changed] = ratio
        return ratios

    def _likely_pairs(self, singles: Sequence[frozenset[str]]) -> list[frozenset[str]]:
        """Pairs of factors, those with the largest effects first; a factor that was not measured may have any."""
        ratios = self._ratios(singles)
        effects = dict.fromkeys(singles, math.inf)
        for single, ratio in ratios.items():
            effects[single] = abs(math.log(ratio.value))
        ordered = sorted(singles, key=lambda single: -effects[single])
        # Two factors with large effects have small numbers.
        pairs = sorted(combinations(range(len(ordered)), 2), key=sum)
        return [ordered[first] | ordered[second] for first, second in pairs[:MOST_PAIRS]]


def closest(total: Estimate, ratios: Mapping[frozenset[str], Estimate]) -> frozenset[str]:
    """The combination that explains the whole change: its interval overlaps the total's and excludes 1.

    Of several, the one closest to the total; empty if there is none.
    """
    best: frozenset[str] = frozenset()
    distance = math.inf
    for changed, ratio in ratios.items():
        overlaps = ratio.low <= total.high and total.low <= ratio.high
        apart = abs(math.log(ratio.value / total.value))
        if overlaps and ratio.excludes_one and apart < distance:
            best, distance = changed, apart
    return best
