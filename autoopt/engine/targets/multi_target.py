"""A run over several targets: a part for each, which is a run of its own, then the choice among their best models.

Targets follow each other, because latencies on one machine cannot be measured in parallel.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

from autoopt.engine.run.export import export
from autoopt.engine.run.output_folder import replaced_note
from autoopt.engine.run.package import Package
from autoopt.engine.run.parts import RunOfParts, Search
from autoopt.engine.targets.part import PoolPart, TargetPart
from autoopt.engine.targets.single_best import JoinedTargets, join_targets
from autoopt.engine.work.context import RunContext
from autoopt.errors import InputError
from autoopt.results import ModelResult, RunResult, TargetResult, WorkCounts
from autoopt.results.run import SearchEnd
from autoopt.store import RunRecord

NO_SINGLE = "no single model meets the constraints on all targets"


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
        """Search each target, measure the best models on all of them, and join the results."""
        observer = self.request.observer
        for part in self.parts:
            observer.on_phase(f"target {part.name}: {part.target.words}")
            self.search_part(part, search)
        queued = sum(map(self._search_in_pool, self.pools))
        pools = [pool for pool in self.pools if pool.result is not None]
        observer.on_phase("measuring the best models of each target on the others")
        minutes = self.request.search.get("minutes", self.parts[0].inputs.spec.search.minutes)
        deadline = self.began + minutes * 60 + queued if minutes else float("inf")
        return self._result(join_targets(self.parts, deadline, pools), pools)

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
        """Write the best single model to `out` and the best for each target to `out/targets/<name>`, as packages."""
        targets = []
        runs = {target.name: self.resources.store.runs.get(target.result.run) for target in result.targets}
        for target in result.targets:
            best = target.result.best
            if best is not None:
                folder = out / "targets" / target.name
                best = self._export_model(target.result, best, runs[target.made_on], runs[target.name], folder)
            targets.append(replace(target, result=replace(target.result, best=best)))
        best = result.best
        if best is not None and result.best_single is not None:
            first = next(iter(result.best_single.targets))
            best = self._export_model(result, best, runs[result.best_single.made_on], runs[first], out)
        return replace(result, best=best, targets=tuple(targets))

    def export_incumbent(self, out: Path) -> bool:
        """Export the best model so far of each target whose search has begun; true if there was one."""
        return super().export_incumbent(out / "targets")

    def _export_model(
        self, result: RunResult, model: ModelResult, made_by: RunRecord, measured_by: RunRecord, out: Path
    ) -> ModelResult:
        """Export a model with its figures on one target; the returned model has its path."""
        package = Package.of(measured_by, result, model, made_by=made_by)
        package = replace(package, scripts_may_run=True)
        note = replaced_note(out, package.run.id) if model.is_source else ""
        if note:
            self.request.observer.on_note(note)
        return replace(model, path=str(export(self.resources.store, package, out, self.resources.pool)))

    def _result(self, joined: JoinedTargets, pools: list[PoolPart]) -> RunResult:
        targets: list[TargetResult] = []
        notes: list[str] = []
        trials: Counter[str] = Counter()
        pass_runs = evaluations = WorkCounts()
        searched: list[TargetPart | PoolPart] = [*self.parts, *pools]
        for part in searched:
            result = part.searched
            best, made_on = joined.best[part.name]
            target = part.target.target().content
            del target["name"]
            targets.append(TargetResult(part.name, target, replace(result, best=best), made_on))
            notes += [f"{part.name}: {note}" for note in result.notes]
            trials.update(result.trial_counts)
            pass_runs += result.pass_runs
            evaluations += part.evaluations
        results = [target.result for target in targets]
        single, end = joined.single, SearchEnd.of(results)
        return RunResult(
            run=self.record.id,
            status=NO_SINGLE if single is None else "finished",
            baseline=results[0].baseline,
            best=None if single is None else single.first,
            front=results[0].front,
            trial_counts=dict(trials),
            pass_runs=pass_runs,
            evaluations=evaluations,
            seconds={"total": round(time.monotonic() - self.began, 3)},
            notes=(*self.left_out, *joined.notes, *notes),
            stopped=end.text,
            time_limit=end.limit,
            targets=tuple(targets),
            best_single=single,
            objectives=results[0].objectives,
            constraints=results[0].constraints,
        )
