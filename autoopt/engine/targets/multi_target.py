"""A run over several targets: a part for each, which is a run of its own, and then the joining of their best models.

The parts share workers, pass runs and the store. Targets of one machine follow each other, as latencies there could
not be measured side by side anyway; those of different machines go on at the same time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType

from autoopt.engine.inputs.request import RunRequest
from autoopt.engine.inputs.resolve import ResolvedInputs, resolve_inputs
from autoopt.engine.planning.plans_by_target import plans_json
from autoopt.engine.planning.proposal import model_name
from autoopt.engine.run.opening import begin, open_session, settings_of
from autoopt.engine.run.session import Session
from autoopt.engine.targets.part import TargetPart, by_machine
from autoopt.engine.targets.single_best import join_targets
from autoopt.engine.work.context import RunContext
from autoopt.engine.work.keys import run_identity
from autoopt.engine.work.resources import Resources
from autoopt.errors import InputError
from autoopt.results import Choice, RunResult, SingleBest, TargetResult
from autoopt.spec import DagSpec
from autoopt.store import RunRecord, Store
from autoopt.store.leases import abandon_run, renewed_claim

SEARCH_SHARE = 0.85
"""How much of the run's minutes the searches may take; the rest is for measuring the best of each on the others."""
NO_SINGLE = "no single model meets the constraints on all targets"


@dataclass
class Targets:
    """A prepared run over several targets; what `Session` is for one. `answer` is set where an identical finished run
    answers."""

    request: RunRequest
    resources: Resources
    parts: list[TargetPart]
    began: float
    record: RunRecord
    left_out: list[str] = field(default_factory=list)
    """Of targets that cannot be, which and why."""
    answer: RunResult | None = None
    _lease: ExitStack = field(default_factory=ExitStack, init=False)

    def __enter__(self) -> Targets:
        if self.answer is None:
            self._lease.enter_context(renewed_claim(self.resources.store, "run", self.record.id))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lease.close()
        if error is not None and self.answer is None:
            said = abandon_run(self.resources.store, self.record.id, error)
            if said:
                self.request.observer.on_note(said)
        self.resources.close()

    @property
    def ctx(self) -> RunContext:
        """That of the first target, on which the figures of `best` are measured."""
        return self._begun(self.parts[0]).ctx

    def carry_out(self, search: Callable[[Session], RunResult]) -> RunResult:
        """The result: the answer of an identical finished run, or what the parts find, each by `search`, joined."""
        if self.answer is not None:
            return self.answer

        def one(part: TargetPart) -> None:
            self.request.observer.on_phase(f"target {part.name}: {part.inputs.spec.all_targets[0].words}")
            with self._begun(part) as session:
                part.result = session.carry_out(search)

        by_machine(self.parts, one)
        until = self.began + self.minutes * 60 if self.minutes else float("inf")
        self.request.observer.on_phase("measuring the best of each target on the others")
        best, single, notes = join_targets(self.parts, until, by_machine)
        result = self._result(best, single, notes)
        self.resources.store.runs.finish(self.record.id, "finished", result.to_json())
        return result

    @property
    def minutes(self) -> float | None:
        """The whole run's."""
        asked: float | None = self.request.search.get("minutes", self.parts[0].inputs.spec.search.minutes)
        return asked

    def export(self, result: RunResult, out: Path) -> RunResult:
        """Leave the best single model in `out` and the best for each target in `out/targets/<name>`, with recipes."""
        parts = {part.name: part for part in self.parts}
        targets = []
        for target in result.targets:
            best = target.result.best
            if best is not None:
                maker = self._begun(parts[target.made_on])
                best = maker.export_choice(best, out / "targets" / target.name)
            targets.append(replace(target, result=replace(target.result, best=best)))
        best = result.best
        if best is not None and result.best_single is not None:
            best = self._begun(parts[result.best_single.made_on]).export_choice(best, out)
        return replace(result, best=best, targets=tuple(targets))

    def _begun(self, part: TargetPart) -> Session:
        if part.session is None:
            began = time.monotonic()
            part.session = open_session(part.request, part.inputs, self.resources, began, parent=self.record)
        return part.session

    def _result(
        self, best: Mapping[str, tuple[Choice | None, str]], single: SingleBest | None, notes: list[str]
    ) -> RunResult:
        targets = []
        for part in self.parts:
            assert part.result is not None
            choice, made_on = best[part.name]
            asked = part.inputs.spec.all_targets[0].target().content
            asked.pop("name")
            target = TargetResult(part.name, asked, replace(part.result, best=choice), made_on)
            targets.append(target)
        results = [t.result for t in targets]
        first = results[0]
        return RunResult(
            run=self.record.id,
            status="finished" if single else NO_SINGLE,
            baseline=first.baseline,
            best=single.choices[targets[0].name] if single else None,
            pareto=first.pareto,
            trials=_sum([r.trials for r in results]),
            pass_runs=_sum([r.pass_runs for r in results]),
            evaluations=_sum([p.open_session.ctx.counts.of("evaluations") for p in self.parts]),
            seconds={"total": round(time.monotonic() - self.began, 3)},
            notes=(*self.left_out, *notes, *(f"{t.name}: {note}" for t in targets for note in t.result.notes)),
            stopped="; ".join(dict.fromkeys(r.stopped for r in results)),
            targets=tuple(targets),
            best_single=single,
            objectives=first.objectives,
            constraints=first.constraints,
        )


def _sum(counts: list[Mapping[str, int]]) -> dict[str, int]:
    return {name: sum(c.get(name, 0) for c in counts) for name in dict.fromkeys(n for c in counts for n in c)}


def prepare_targets(request: RunRequest, spec: DagSpec, resources: Resources, began: float) -> Targets:
    """A run over the targets of a DAG: planned for each, begun, taken up or answered.

    Raises:
        InputError: whatever is wrong with what the user gave, for any of the targets.
    """
    minutes = request.search.get("minutes", spec.search.minutes)
    parts = []
    for target in spec.all_targets:
        sharing = sum(t.machine == target.machine for t in spec.all_targets)
        search = {**request.search, "minutes": minutes * SEARCH_SHARE / sharing} if minutes else request.search
        own = replace(request, target=target.name, search=search, resume=None, sweep=None)
        parts.append(TargetPart(target.name, own, resolve_inputs(own, spec.for_target(target.name), resources)))
    parts, left_out = _possible(parts)
    first = parts[0].inputs
    named = [[part.name, part.inputs.identity] for part in parts]
    identity = run_identity({"targets": named, **({"left out": left_out} if left_out else {})})
    finished = None if request.fresh or request.retry_failed else resources.store.runs.latest_finished(identity)
    if finished is not None and outdated(finished, resources.store):
        request, finished = replace(request, resume=finished.id), None
    record = finished or begin(request, _record(request, identity, parts, first), resources.store)
    made = Targets(request, resources, parts, began, record, left_out)
    if finished is not None and finished.result is not None:
        made.answer = RunResult.from_json(finished.result).as_reused(time.monotonic() - began)
    return made


def _possible(parts: list[TargetPart]) -> tuple[list[TargetPart], list[str]]:
    """The parts that have chains, and why the others are left out.

    Raises:
        InputError: none has.
    """
    possible = [part for part in parts if part.inputs.plan.chain_count]
    left_out = [f"target {p.name} is left out: {p.inputs.why_pruned}" for p in parts if p not in possible]
    if not possible:
        raise InputError(f"every chain is pruned ({'; '.join(left_out)})", where=parts[0].inputs.spec.source.file)
    return possible, left_out


def outdated(record: RunRecord, store: Store) -> bool:
    """Whether a finished run over several targets has a part whose chains were done again since it was joined."""
    parts = {str(part["run"]) for part in (record.result or {}).get("targets") or ()}
    joined = record.finished or 0.0
    return any((run.finished or 0.0) > joined for run in store.runs.all(status="finished") if run.id in parts)


def _record(request: RunRequest, identity: str, parts: list[TargetPart], first: ResolvedInputs) -> RunRecord:
    asked = replace(request, target=None)
    return RunRecord(
        id="",
        name=model_name(first.model),
        identity=identity,
        model=first.source.artifact,
        plan=plans_json({part.name: part.inputs.plan for part in parts}, limit=100),
        settings={**settings_of(asked, first), "targets": [part.name for part in parts]},
        sweep=request.sweep,
    )
