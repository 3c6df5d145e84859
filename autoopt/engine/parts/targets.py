"""A run over several targets: a part for each, which is a run of its own, then the choice among their best models.

If latency decides, the best models of this machine's targets are timed in turns, each in processes of its own, beside
the source model on the first target: as users run it now. Other objectives are compared by their values.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NoReturn

import numpy as np

from autoopt.engine.parts.model_set import ModelSetRun
from autoopt.engine.parts.run_of_parts import Part, PoolPart, RunOfParts, Search
from autoopt.engine.run.export import export_best
from autoopt.engine.run.select import TAKES_NOTHING
from autoopt.engine.run.session import Session
from autoopt.engine.work.context import RunContext
from autoopt.engine.work.meter_runs import EvaluationOptions, meter_runs, request_to_meter
from autoopt.errors import InputError, TimeUp
from autoopt.json_codec import from_json
from autoopt.measure.intervals.replicas import FEW, over_stretches
from autoopt.measure.latency.busy import Load, QuietWait
from autoopt.measure.latency.comparison import Comparison, Pair
from autoopt.measure.latency.estimate import estimates
from autoopt.measure.latency.timer import Block, Replica, Subject, WarmUp
from autoopt.measure.latency.timing import Measurement
from autoopt.measure.request import MeasureRequest
from autoopt.measure.settings import MeasurementSettings
from autoopt.metrics import MEDIAN_LATENCY, Estimate, Objective
from autoopt.model.candidate import Candidate
from autoopt.problem.hosts import Host, open_host
from autoopt.results import ChosenTarget, ModelResult, Note, PartResult, RunResult, values_of
from autoopt.results.figures import kind
from autoopt.tuning import RACE, TIMING

OPEN: Final = "autoopt.measure.latency.meter:open_session"
TIME: Final = "autoopt.measure.latency.meter:time_block"


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

    def search_part(self, part: Part, search: Search) -> None:
        """Search one target; another one than the first is left out where its provider does not take the model."""
        self.request.observer.on_phase(f"target {part.name}: {part.target.words}")
        try:
            super().search_part(part, search)
        except InputError as error:
            if part is self.parts[0]:
                raise
            self._leave_out(part, error)

    def choose(self) -> RunResult:
        """Search the targets of other machines, and choose among the best models of this machine's targets."""
        self.parts = [part for part in self.parts if part.result is not None]
        queued = sum(map(self._search_in_pool, self._pools))
        pools = [pool for pool in self._pools if pool.result is not None]
        minutes = self.request.search.get("minutes", self.parts[0].problem.spec.search.minutes)
        deadline = self.began + minutes * 60 + queued if minutes else float("inf")
        ended: list[PoolPart] = [*self.parts, *pools]
        for pool in pools:
            self._measure_in_pool(pool, ended, deadline)
        chosen, baseline, notes = choose_target(self.parts, deadline)
        result, first = self.joined([part.searched for part in ended]), ended[0].searched
        best = chosen.models.get(chosen.name, first.best)
        return replace(
            result,
            status=first.status if best is None else "finished",
            baseline=baseline,
            best=best,
            notes=(*result.notes, *notes, *_named(ended, lambda search: search.notes)),
            warnings=tuple(_named(ended, lambda search: search.warnings)),
            targets=tuple(PartResult(part.name, part.searched, _settings_of(part)) for part in ended),
            choice=chosen,
        )

    def export(self, result: RunResult, out: Path) -> RunResult:
        """Write the best model to `out` and the best for each target to `out/targets/<name>`, as packages."""
        store, pool, observer = self.resources.store, self.resources.pool, self.request.observer
        records = {target.name: store.runs.get(target.result.run) for target in result.targets}
        targets = []
        for target in result.targets:
            folder = out / "targets" / target.name
            found = export_best(store, records[target.name], target.result, folder, pool, observer)
            targets.append(replace(target, result=found))
        if result.choice is not None:
            name = result.choice.name
            chosen = next(target.result for target in targets if target.name == name)
            result = export_best(store, records[name], replace(result, parts=chosen.parts), out, pool, observer)
        return replace(result, targets=tuple(targets), parts=())

    def export_incumbent(self, out: Path) -> bool:
        """Export the best model so far of each target whose search has begun; true if there was one."""
        return super().export_incumbent(out / "targets")

    def _search_in_pool(self, pool: PoolPart) -> float:
        """Have a work pool search its target; returns the seconds that it waited for a worker there.

        A target that cannot be searched is left out with a note.
        """
        self.request.observer.on_phase(f"target {pool.name}: {pool.target.words}")
        assert pool.request.in_pool is not None, "checked before the search"
        try:
            ended = pool.request.in_pool(pool.request)
        except InputError as error:
            self._leave_out(pool, error)
            return 0.0
        pool.result = ended.result
        return ended.queued

    def _leave_out(self, part: PoolPart, error: InputError) -> None:
        self.notes.append(Note(f"target {part.name} is left out: {error}"))
        self.request.observer.on_note(str(self.notes[-1]))

    def _measure_in_pool(self, pool: PoolPart, ended: Sequence[PoolPart], deadline: float) -> None:
        """Have a pool's machine measure the best models of all targets in one more run; its best is then the target's.

        Only figures of that machine are compared. A run that fails, or has no time left, leaves a note.
        """
        candidates = {name for part in ended for name in _best_of(part.searched)}
        if candidates.issubset(_best_of(pool.searched)):
            return
        remaining, search = deadline - time.monotonic(), pool.request.search
        if math.isfinite(remaining):
            search = {**search, "minutes": max(remaining, 0.0) / 60}
        assert pool.request.in_pool is not None, "checked before the search"
        try:
            if remaining <= 0:
                raise InputError("the time was up")
            request = replace(pool.request, search=search, candidates=tuple(sorted(candidates)))
            measured = pool.request.in_pool(request).result.best
        except InputError as error:
            self.notes.append(Note(f"target {pool.name} did not measure the best models of other targets: {error}"))
            return
        own = pool.searched.best
        if measured is not None and (own is None or own.candidate.key != measured.candidate.key):
            pool.result = replace(pool.searched, best=replace(measured, trial=None))


def _named(parts: Sequence[PoolPart], texts_of: Callable[[RunResult], Sequence[str]]) -> list[str]:
    """Texts of the searches of targets, each with the target's name."""
    return [f"{part.name}: {text}" for part in parts for text in texts_of(part.searched)]


def _settings_of(part: PoolPart) -> dict[str, object]:
    """The settings of a target."""
    return {name: value for name, value in part.target.target().content.items() if name != "name"}


def _best_of(result: RunResult) -> list[str]:
    """The few best models of a search as `RUN:TRIAL`."""
    models = [*filter(None, [result.better_model]), *result.front]
    names = dict.fromkeys(f"{result.run}:{model.trial}" for model in models if model.trial is not None)
    return list(names)[: RACE.contenders]


def choose_target(parts: Sequence[Part], until: float) -> tuple[ChosenTarget, ModelResult, list[str]]:
    """Choose the target whose best model is the answer, and return the source model's figures beside it, and notes.

    The first target, which users have now, stays unless another one is certainly faster. No timing begins after `until`
    on `time.monotonic`.
    """
    first, baseline, objective = parts[0], parts[0].searched.baseline, parts[0].problem.goal.objectives[0]
    bests, notes = _contending(parts)
    if objective.metric != MEDIAN_LATENCY:
        name = _best_by_value(objective, bests) or first.name
        return ChosenTarget(name, bests), baseline, notes
    if first.name in bests and bests[first.name].is_source:
        del bests[first.name]
    if not bests or time.monotonic() >= until:
        return ChosenTarget(first.name, {}), baseline, notes
    first.request.observer.on_phase("timing the best model of each target in turns with your model on the first one")
    try:
        models, comparisons, source = _timed([part for part in parts if part.name in bests], first, bests, until)
    except (InputError, TimeUp) as error:
        return ChosenTarget(first.name, {}), baseline, [*notes, f"the targets were not timed in turns: {error}"]
    metrics, intervals = {**baseline.metrics, **values_of(source)}, {**baseline.intervals, **source}
    fastest, more = fastest_target(first.name, models, comparisons)
    baseline = replace(baseline, metrics=metrics, intervals=intervals).as_source
    return ChosenTarget(fastest, models), baseline, [*notes, *more]


def _best_by_value(objective: Objective, bests: Mapping[str, ModelResult]) -> str:
    """The target whose best model has the best value of an objective; empty if none has one."""
    values = {name: best.metrics[objective.metric] for name, best in bests.items() if objective.metric in best.metrics}
    choose = min if objective.goal == "minimize" else max
    return choose(values, key=values.__getitem__, default="")


def _contending(parts: Sequence[Part]) -> tuple[dict[str, ModelResult], list[str]]:
    """The best models of the targets without those whose provider takes no node, and a note for each of these.

    The CPU provider runs the same on the target that has it.
    """
    bests, notes = {}, []
    for part in parts:
        best = part.searched.best
        idle = [flag for flag in best.flags if flag.endswith(TAKES_NOTHING)] if best is not None else []
        if idle and part is not parts[0]:
            notes.append(f"{part.name} is not compared: {idle[0]}")
        elif best is not None:
            bests[part.name] = best
    return bests, notes


def _timed(
    contenders: Sequence[Part], first: Part, bests: Mapping[str, ModelResult], until: float
) -> tuple[dict[str, ModelResult], dict[str, Comparison], Mapping[str, Estimate]]:
    """Time the best models of the contenders in turns with the source model on the first target.

    Returns:
        By target, its best model as timed and the comparison with the source; and the figures of the source.
    """
    comparisons, load = _measured_in_turns(contenders, first, bests, until)
    models: dict[str, ModelResult] = {}
    source: Mapping[str, Estimate] = {}
    for part, comparison in zip(contenders, comparisons, strict=True):
        best = bests[part.name]
        request = replace(_request(part, best.candidate), source=None, metrics=(MEDIAN_LATENCY,))
        found = estimates(request, comparison, load.contention)
        latency, source = found.metrics[MEDIAN_LATENCY], found.source_metrics
        ratio = over_stretches(found.ratios[MEDIAN_LATENCY], comparison.unit_logs())
        # The other ratios of its speed and memory are to the source on its own target.
        kept = {metric: value for metric, value in best.ratios.items() if kind(metric) not in ("latency", "memory")}
        models[part.name] = replace(
            best,
            chain=f"{best.chain} on {part.name}" if best.is_source else best.chain,
            metrics={**best.metrics, MEDIAN_LATENCY: latency.value},
            intervals={**best.intervals, MEDIAN_LATENCY: latency},
            ratios={**kept, MEDIAN_LATENCY: ratio},
        )
    return models, dict(zip(models, comparisons, strict=True)), source


def _measured_in_turns(
    contenders: Sequence[Part], first: Part, bests: Mapping[str, ModelResult], until: float
) -> tuple[list[Comparison], Load]:
    """Time the models while no other run measures, and return what other programs did between sittings."""
    ctx = first.open_session.ctx
    deployed = [(first, ctx.problem.source), *((part, bests[part.name].candidate) for part in contenders)]
    settings = ctx.problem.measurement_settings
    quiet, loads = QuietWait(), list[Load]()
    # Others would wait for too long for a long inference.
    is_long = first.searched.baseline.metrics.get(MEDIAN_LATENCY, 0.0) > TIMING.longest_with_precedence * 1e3
    with ctx.resources.gate.measuring(until):

        @contextmanager
        def opened() -> Iterator[list[Subject]]:
            waited = quiet.wait(settings.quiet_seconds)
            loads.append(Load.sample())
            ahead = settings.precedence and (waited["quiet"] is False or loads[-1].busy) and not is_long
            with ExitStack() as stack:
                subjects: list[Subject] = []
                for part, candidate in deployed:
                    host, limits = part.problem.host, part.problem.limits
                    process = stack.enter_context(open_host(host.type, host.python or None, limits.memory))
                    request = _request(part, candidate)
                    subjects.append(DeployedModel(process, request, limits.measure_seconds, ahead=ahead))
                yield subjects

        return time_in_sittings(opened, settings, until), Load.mean(loads)


def time_in_sittings(
    opened: Callable[[], AbstractContextManager[list[Subject]]], settings: MeasurementSettings, until: float
) -> list[Comparison]:
    """Time models in turns, in several sittings, each with what `opened` opens: the source first.

    A process that fails ends the sittings; those before it count if they are enough for an interval.

    Raises:
        InputError: a process failed before.
        TimeUp: the time ends before.
    """
    sittings: list[list[Comparison]] = []
    while len(sittings) < RACE.sittings:
        late = time.monotonic() - until
        if late >= (0.0 if len(sittings) >= FEW else RACE.late_seconds):
            break
        try:
            with opened() as (source, *models):
                seconds = min(settings.seconds * (1 + len(models)), max(1.0, -late)) / FEW
                sitting = replace(settings, seconds=seconds, replicas=1, fixed=True, seed=settings.seed + len(sittings))
                comparisons = [Comparison(model, source, seed=settings.seed) for model in models]
                Measurement(list(comparisons), sitting).run()
        except InputError:
            if len(sittings) < FEW:
                raise
            break
        sittings.append(comparisons)
    if len(sittings) < FEW:
        raise TimeUp("the time was up")
    return list(map(_joined, zip(*sittings, strict=True)))


def _joined(sittings: Sequence[Comparison]) -> Comparison:
    """The comparison of two deployments over several sittings, each of which is one replica."""
    pairs = [pair._replace(replica=index) for index, sitting in enumerate(sittings) for pair in sitting.pairs]
    candidate, source = Subject(_elsewhere), Subject(_elsewhere)
    for sitting in sittings:
        assert sitting.source is not None, "every deployment is compared with the source"
        candidate.replicas += sitting.candidate.replicas
        source.replicas += sitting.source.replicas
    return Comparison(candidate, source, len(sittings), sittings[0].seed, pairs)


def _request(part: Part, candidate: Candidate) -> MeasureRequest:
    """The request for the latency of a candidate on a target."""
    ctx = part.open_session.ctx
    options = EvaluationOptions(metrics=(MEDIAN_LATENCY,), judged=False)
    return request_to_meter(ctx, next(meter_runs(ctx, candidate, options)))


def fastest_target(
    first: str, models: Mapping[str, ModelResult], comparisons: Mapping[str, Comparison]
) -> tuple[str, list[str]]:
    """The target with the lowest ratio that is clearly below 1, unless the first one is as good; and notes."""
    ratios = {name: model.ratios[MEDIAN_LATENCY] for name, model in models.items()}
    gaining = sorted((name for name in ratios if ratios[name].is_gain("minimize")), key=lambda name: ratios[name].value)
    notes: list[str] = []
    for name in gaining:
        if name == first:
            break
        ratio = ratios[name]
        if first in gaining:
            one, other = comparisons[name], comparisons[first]
            pairs = []
            for pair, beside in zip(one.pairs, other.pairs, strict=True):  # timed in the same rounds
                as_source = Pair(beside.replica, beside.candidate, 1.0, beside.disturbed, beside.preempted)
                pairs.append(pair.beside(as_source))
            both = Comparison(one.candidate, other.candidate, one.replicas, one.seed, pairs)
            ratio = over_stretches(both.estimate(), both.unit_logs())
        if ratio.widened(RACE.room).is_gain("minimize"):
            return name, notes
        notes.append(f"{name} is not certainly faster than {first}, which you have now")
    return first, notes


class DeployedModel(Subject):
    """A model whose session is in the process of a host."""

    def __init__(self, host: Host, request: MeasureRequest, limit: float, *, ahead: bool) -> None:
        """Open no session yet. One may take `limit` seconds to open; its threads go `ahead` of other programs."""
        super().__init__(make=_elsewhere)
        self._host, self._limit = host, limit
        self._opening: dict[str, Any] = {"request": request.to_json(), "ahead": ahead}

    def add_replica(self, limit_ns: float) -> Replica:
        """Open one more session there and warm it up."""
        told = self._call(OPEN, {**self._opening, "limit_ns": limit_ns})
        warm = from_json(WarmUp, told["warm"])
        self.replicas.append(Replica(_elsewhere, told["cold_start"], told["first_inference"], warm))
        return self.replicas[-1]

    def time_block(self, index: int) -> Block:
        """Time one block there, by the clock: other threads or a device may do the work."""
        told = self._call(TIME, {"replica": index})
        wall = np.array(told["wall"])
        return Block(wall, wall, told["preempted"], helper_switches=told["helper_switches"], waited=True)

    def _call(self, function: str, payload: dict[str, Any]) -> dict[str, Any]:
        result = self._host.pool.call(function, payload, self._limit)
        if result.value is None:
            raise InputError(f"{result.outcome}: {result.message}", where=self._host.name)
        return result.value


def _elsewhere(*_: int) -> NoReturn:
    raise AssertionError("the session is in another process")
