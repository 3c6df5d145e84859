"""A run over several targets: a part for each, which is a run of its own, then the choice among their best models."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path

from autoopt.engine.parts.model_set import ModelSetRun
from autoopt.engine.parts.run_of_parts import Part, PoolPart, RunOfParts, Search
from autoopt.engine.parts.target_choice import choose_target
from autoopt.engine.run.export import export_best
from autoopt.engine.run.session import Session
from autoopt.engine.work.context import RunContext
from autoopt.errors import InputError
from autoopt.results import Baseline, ChosenTarget, Note, RunResult, TargetResult
from autoopt.tuning import RACE


class Targets(RunOfParts):
    """A prepared run over several targets. Its notes name each target that is left out."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._pools = list(self.problem.pools)
        for pool in self._pools:
            pool.request = replace(pool.request, parent=self.record.id)

    @property
    def ctx(self) -> RunContext:
        """The context of the first target of this machine."""
        return self.session_of(self.parts[0]).ctx

    def opened(self, part: Part) -> Session | RunOfParts:
        """Open the session of a target, or the run over the models of a set on it."""
        if part.models is None:
            return super().opened(part)
        return ModelSetRun.open(part.models, self.resources, time.monotonic(), parent=self.record)

    def search(self, search: Search) -> RunResult:
        """Search each target and choose among the best models of this machine's targets."""
        observer = self.request.observer
        for part in self.parts:
            observer.on_phase(f"target {part.name}: {part.target.words}")
            try:
                self.search_part(part, search)
            except InputError as error:  # a provider may not take the model
                if part is self.parts[0]:
                    raise
                self._leave_out(part.name, error)
        self.parts = [part for part in self.parts if part.result is not None]
        queued = sum(map(self._search_in_pool, self._pools))
        minutes = self.request.search.get("minutes", self.parts[0].problem.spec.search.minutes)
        deadline = self.began + minutes * 60 + queued if minutes else float("inf")
        for pool in self._pools:
            self._measure_in_pool(pool, deadline)
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
            self._leave_out(pool.name, error)
            return 0.0
        pool.result = ended.result
        return ended.queued

    def _leave_out(self, target: str, error: InputError) -> None:
        self.notes.append(Note(f"target {target} is left out: {error}"))
        self.request.observer.on_note(str(self.notes[-1]))

    def _measure_in_pool(self, pool: PoolPart, deadline: float) -> None:
        """Have a pool's machine measure the best models of all targets in one more run; its best is then the target's.

        Only figures of that machine are compared. A run that fails, or has no time left, leaves a note.
        """
        remaining = deadline - time.monotonic()
        others: list[Part | PoolPart] = [*self.parts, *(each for each in self._pools if each is not pool)]
        names = {name for part in others for name in _best_of(part.result)}
        if pool.result is None or not names:
            return
        names.update(_best_of(pool.result))
        search = pool.request.search
        if math.isfinite(remaining):
            search = {**search, "minutes": max(remaining, 0.0) / 60}
        assert pool.request.in_pool is not None, "checked before the search"
        try:
            if remaining <= 0:
                raise InputError("the time was up")
            request = replace(pool.request, search=search, candidates=tuple(sorted(names)))
            measured = pool.request.in_pool(request).result
        except InputError as error:
            self.notes.append(Note(f"target {pool.name} did not measure the best models of other targets: {error}"))
            return
        own = pool.result.best
        if measured.best is not None and (own is None or own.candidate.key != measured.best.candidate.key):
            pool.result = replace(pool.result, best=replace(measured.best, trial=None))

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
            chosen = next(target.result for target in targets if target.name == result.choice.name)
            result = exported(replace(result, parts=chosen.parts), result.choice.name, out)
        return replace(result, targets=tuple(targets), parts=())

    def export_incumbent(self, out: Path) -> bool:
        """Export the best model so far of each target whose search has begun; true if there was one."""
        return super().export_incumbent(out / "targets")

    def _result(self, chosen: ChosenTarget, baseline: Baseline, notes: list[str]) -> RunResult:
        ended: list[Part | PoolPart] = [*self.parts, *(pool for pool in self._pools if pool.result is not None)]
        targets: list[TargetResult] = []
        warnings: list[str] = []
        for part in ended:
            assert part.result is not None, "its search has ended"
            target = part.target.target().content
            del target["name"]
            targets.append(TargetResult(part.name, target, part.result))
            notes += [f"{part.name}: {note}" for note in part.result.notes]
            warnings += [f"{part.name}: {warning}" for warning in part.result.warnings]
        results = [target.result for target in targets]
        best = chosen.models.get(chosen.name, results[0].best)
        return replace(
            self.joined(results),
            status="finished" if best is not None else results[0].status,
            baseline=baseline,
            best=best,
            seconds={"total": round(time.monotonic() - self.began, 3)},
            notes=(*map(str, self.notes), *notes),
            warnings=tuple(warnings),
            targets=tuple(targets),
            choice=chosen,
            objectives=results[0].objectives,
            constraints=results[0].constraints,
        )


def _best_of(result: RunResult | None) -> list[str]:
    """The few best models of a search as `RUN:TRIAL`."""
    if result is None:
        return []
    models = [*filter(None, [result.better_model]), *result.front]
    names = dict.fromkeys(f"{result.run}:{model.trial}" for model in models if model.trial is not None)
    return list(names)[: RACE.contenders]
