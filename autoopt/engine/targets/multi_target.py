"""A run over several targets: a part for each, which is a run of its own, then the choice among their best models.

Targets follow each other, because latencies on one machine cannot be measured in parallel.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from autoopt.engine.model_sets.preparation import SetInputs, open_model_set, resolve_model_set
from autoopt.engine.run.export import export_best
from autoopt.engine.run.opening import settings_of
from autoopt.engine.run.parts import RunOfParts, Search, open_run_of_parts, time_of_parts
from autoopt.engine.run.session import Session
from autoopt.engine.targets.choice import PoolPart, TargetPart, choose_target
from autoopt.engine.work.context import RunContext
from autoopt.errors import InputError
from autoopt.problem.admission import ARTIFACT
from autoopt.problem.content_keys import run_identity
from autoopt.problem.plans import plans_json
from autoopt.problem.resolve import resolve
from autoopt.problem.resources import Resources
from autoopt.problem.run_request import RunRequest, model_name, target_request
from autoopt.results import Baseline, ChosenTarget, RunResult, TargetResult
from autoopt.spec import DagSpec
from autoopt.spec.targets import TargetSpec
from autoopt.store import RunRecord
from autoopt.tuning import RACE


def prepare_targets(
    request: RunRequest, spec: DagSpec, models: Mapping[str, str], resources: Resources, began: float
) -> Targets:
    """Plan every target of a DAG and open the run. `models` are those of a set by name, if there is one.

    Raises:
        InputError: anything is wrong with what the user gave, for any of the targets.
    """
    parts, left_out = _runnable(_planned(request, spec, models, resources))
    first = parts[0].problem
    pools = _pool_parts(request, spec, first.source.artifact)
    identities = [[part.name, (part.model_set or part.problem).identity] for part in parts]
    content: dict[str, object] = {"targets": identities}
    if pools:
        content["work pools"] = [pool.target.model_dump(mode="json") for pool in pools]
    if left_out:
        content["left out"] = left_out
    names = [part.name for part in parts] + [pool.name for pool in pools]
    settings = settings_of(replace(request, target=None), first)
    record = RunRecord(
        id="",
        name=request.name or " + ".join(models) or model_name(first.model),
        identity=run_identity(content),
        model=first.source.artifact,
        plan=plans_json({name: plan for part in parts for name, plan in part.plans.items()}, limit=100),
        settings={**settings, "targets": names},
        sweep=request.sweep,
    )
    record, answer = open_run_of_parts(request, record, resources.store, began)
    began -= time_of_parts(resources.store, record.id)
    for pool in pools:
        pool.request = replace(pool.request, parent=record.id)
    return Targets(request, resources, parts, began, record, answer, left_out, pools)


def _planned(request: RunRequest, spec: DagSpec, models: Mapping[str, str], resources: Resources) -> list[TargetPart]:
    """Plan every target of this machine. The models of a set are read and recorded once."""
    if models and any(target.work_pool for target in spec.all_targets):
        raise spec.error(("targets",), "the models of a set run on one machine", "leave the work pools out")
    inputs = SetInputs.read(request, spec, models, resources) if models else None
    parts = []
    for target in spec.all_targets:
        if not target.is_elsewhere(request.pool):
            part_request, own_spec = _part_request(request, spec, target), spec.for_target(target.name)
            model_set = resolve_model_set(part_request, own_spec, inputs, resources) if inputs else None
            problem = model_set.whole if model_set else resolve(part_request, own_spec, resources)
            parts.append(TargetPart(target.name, part_request, problem, model_set=model_set))
    return parts


def _pool_parts(request: RunRequest, spec: DagSpec, source: str) -> list[PoolPart]:
    """The targets of other machines, which take the source model from the store by its digest."""
    parts = []
    for target in spec.all_targets:
        if target.is_elsewhere(request.pool):
            part_request = replace(_part_request(request, spec, target), model=f"{ARTIFACT}{source}")
            parts.append(PoolPart(target.name, target, part_request))
    return parts


def _part_request(request: RunRequest, spec: DagSpec, target: TargetSpec) -> RunRequest:
    """The request for one of the targets, with its share of the minutes."""
    minutes = request.search.get("minutes", spec.search.minutes)
    search = request.search
    if minutes:
        search = {**search, "minutes": minutes * RACE.targets_search_share / len(spec.all_targets)}
    part = replace(target_request(request, target), search=search, resume=None, sweep=None)
    if target.is_elsewhere(request.pool):
        name = request.name or model_name(str(request.model or spec.model_path))
        return replace(part, pool=target.work_pool, out=None, name=name)
    return replace(part, out=None if request.out is None else request.out / "targets" / target.name)


def _runnable(parts: list[TargetPart]) -> tuple[list[TargetPart], list[str]]:
    """The parts that have chains, and a note for each of the others."""
    runnable, notes = [], []
    for part in parts:
        if all(plan.chain_count for plan in part.plans.values()):
            runnable.append(part)
        else:
            notes.append(f"target {part.name} is left out: {part.problem.why_pruned}")
    if not runnable:
        raise InputError(f"every chain is pruned ({'; '.join(notes)})", where=parts[0].problem.spec.source.file)
    return runnable, notes


@dataclass
class Targets(RunOfParts[TargetPart]):
    """A prepared run over several targets."""

    left_out: list[str] = field(default_factory=list)
    """A note for each target that is left out: no chain can run on it, or its search has failed."""
    pools: list[PoolPart] = field(default_factory=list)
    """The targets of other machines; they follow those of this one."""

    @property
    def ctx(self) -> RunContext:
        """The context of the first target of this machine."""
        return self.session_of(self.parts[0]).ctx

    def opened(self, part: TargetPart) -> Session | RunOfParts[Any]:
        """Open the session of a target, or the run over the models of a set on it."""
        if part.model_set is None:
            return super().opened(part)
        return open_model_set(part.model_set, self.resources, time.monotonic(), parent=self.record)

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
        queued = sum(map(self._search_in_pool, self.pools))
        minutes = self.request.search.get("minutes", self.parts[0].problem.spec.search.minutes)
        deadline = self.began + minutes * 60 + queued if minutes else float("inf")
        for pool in self.pools:
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
        self.left_out.append(f"target {target} is left out: {error}")
        self.request.observer.on_note(self.left_out[-1])

    def _measure_in_pool(self, pool: PoolPart, deadline: float) -> None:
        """Have a pool's machine measure the best models of all targets in one more run; its best is then the target's.

        Only figures of that machine are compared. A run that fails, or has no time left, leaves a note.
        """
        remaining = deadline - time.monotonic()
        others: list[TargetPart | PoolPart] = [*self.parts, *(each for each in self.pools if each is not pool)]
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
            self.left_out.append(f"target {pool.name} did not measure the best models of other targets: {error}")
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
        ended: list[TargetPart | PoolPart] = [*self.parts, *(pool for pool in self.pools if pool.result is not None)]
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
            notes=(*self.left_out, *notes),
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
