"""A run over several targets: a part for each, which is a run of its own, then the choice among their best models.

Targets follow each other, because latencies on one machine cannot be measured in parallel.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

from autoopt.engine.run.export import export_best
from autoopt.engine.run.parts import RunOfParts, Search
from autoopt.engine.targets.choice import choose_target
from autoopt.engine.targets.part import PoolPart, TargetPart
from autoopt.engine.work.context import RunContext
from autoopt.errors import InputError
from autoopt.results import Baseline, ChosenTarget, RunResult, TargetResult, WorkCounts
from autoopt.results.run import SearchEnd


@dataclass
class Targets(RunOfParts[TargetPart]):
    """A prepared run over several targets."""

    left_out: list[str] = field(default_factory=list)
    """A note for each target that no chain can run on."""
    pools: list[PoolPart] = field(default_factory=list)
    """The targets of other machines; they follow those of this one."""

    @property
    def ctx(self) -> RunContext:
        """The context of the first target of this machine."""
        return self.session_of(self.parts[0]).ctx

    def search(self, search: Search) -> RunResult:
        """Search each target and choose among the best models of this machine's targets."""
        observer = self.request.observer
        for part in self.parts:
            observer.on_phase(f"target {part.name}: {part.target.words}")
            self.search_part(part, search)
        queued = sum(map(self._search_in_pool, self.pools))
        minutes = self.request.search.get("minutes", self.parts[0].inputs.spec.search.minutes)
        deadline = self.began + minutes * 60 + queued if minutes else float("inf")
        chosen, baseline, notes = choose_target(self.parts, deadline)
        return self._result(chosen, baseline, notes)

    def _search_in_pool(self, pool: PoolPart) -> float:
        """Have a work pool search its target; returns the seconds that it waited for a worker there.

        A target that cannot be searched is left out with a note.
        """
        self.request.observer.on_phase(f"target {pool.name}: {pool.target.words}")
        assert pool.request.in_pool is not None, "checked before the search"
        try:
            ended = pool.request.in_pool(pool.request)
        except InputError as error:
            self.left_out.append(f"target {pool.name} is left out: {error}")
            self.request.observer.on_note(self.left_out[-1])
            return 0.0
        pool.result = ended.result
        return ended.queued

    def export(self, result: RunResult, out: Path) -> RunResult:
        """Write the best model to `out` and the best for each target to `out/targets/<name>`, as packages."""
        runs = {target.name: self.resources.store.runs.get(target.result.run) for target in result.targets}

        def exported(found: RunResult, name: str, folder: Path) -> RunResult:
            store, pool = self.resources.store, self.resources.pool
            return export_best(store, runs[name], found, folder, pool, self.request.observer)

        targets = []
        for target in result.targets:
            found = exported(target.result, target.name, out / "targets" / target.name)
            targets.append(replace(target, result=found))
        if result.choice is not None:
            result = exported(result, result.choice.name, out)
        return replace(result, targets=tuple(targets))

    def export_incumbent(self, out: Path) -> bool:
        """Export the best model so far of each target whose search has begun; true if there was one."""
        return super().export_incumbent(out / "targets")

    def _result(self, chosen: ChosenTarget, baseline: Baseline, notes: list[str]) -> RunResult:
        ended: list[TargetPart | PoolPart] = [*self.parts, *(pool for pool in self.pools if pool.result is not None)]
        targets: list[TargetResult] = []
        trials: Counter[str] = Counter()
        pass_runs = evaluations = WorkCounts()
        for part in ended:
            result = part.result
            assert result is not None, "its search has ended"
            target = part.target.target().content
            del target["name"]
            targets.append(TargetResult(part.name, target, result))
            notes += [f"{part.name}: {note}" for note in result.notes]
            trials.update(result.trial_counts)
            pass_runs += result.pass_runs
            evaluations += result.evaluations
        results = [target.result for target in targets]
        best, end = chosen.models.get(chosen.name, results[0].best), SearchEnd.of(results)
        return RunResult(
            run=self.record.id,
            status="finished" if best is not None else results[0].status,
            baseline=baseline,
            best=best,
            trial_counts=dict(trials),
            pass_runs=pass_runs,
            evaluations=evaluations,
            seconds={"total": round(time.monotonic() - self.began, 3)},
            notes=(*self.left_out, *notes),
            stopped=end.text,
            time_limit=end.limit,
            targets=tuple(targets),
            choice=chosen,
            objectives=results[0].objectives,
            constraints=results[0].constraints,
        )
