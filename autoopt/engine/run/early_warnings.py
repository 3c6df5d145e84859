"""Warn before the search if the source model and its data do not seem to belong together, or a user's pass fails."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from autoopt.dag.compiler.chain import Chain
from autoopt.data.config import DataConfig
from autoopt.engine.run.trial import nodes_up_to
from autoopt.engine.work.context import RunContext
from autoopt.engine.work.pass_runs import run_chain
from autoopt.errors import InputError
from autoopt.json_codec import JsonObject
from autoopt.measure.request import MeasureRequest
from autoopt.model.model_file import ModelFile
from autoopt.option_names import option, spoken
from autoopt.outcome import Outcome
from autoopt.problem.environment import versions
from autoopt.problem.problem import Problem
from autoopt.problem.reading import first_call, is_read_from_files, read_once
from autoopt.report.words.failures import plain_reason
from autoopt.results import Note, NoteKind
from autoopt.tuning import RACE
from autoopt.workers import gated_call

CHECK_SOURCE: Final = "autoopt.measure.worker:check_source"


def without_labels() -> str:
    """The remedy where the labels do not belong to the model."""
    return f"or go on without the labels: {option('metric', 'agreement')} compares with your model's outputs"


def unchecked() -> str:
    """The note of a run that is too short to check the source model."""
    more = option("minutes")
    return f"no time to check that your model and its data belong together; a larger {more} allows it"


def source_failure(problem: Problem, message: str) -> str:
    """Say that the source model does not run, on which inputs, and what the runtime says."""
    inputs = ""
    if not problem.data.evaluation:
        inputs = f" on generated inputs ({option('data', of='FILE')} gives it real ones)"
    return f"the source model does not run{inputs}: {plain_reason(message)}"


def source_warnings(ctx: RunContext) -> list[Note]:
    """Run the source model on some items, of the data or generated: a warning for each sign of trouble, or for no time.

    A model that cannot be run says so when it is measured. Only this machine's interpreter is asked.

    Raises:
        InputError: The accuracy that the goal keeps is not that of the model.
    """
    problem = ctx.problem
    config = problem.data.evaluation.config
    if problem.host.type != "local":
        return []
    request = MeasureRequest(
        candidate=ModelFile(ctx.model_path(problem.source), problem.source.session_options),
        metrics=tuple(metric.name for metric in problem.goal.metrics),
        data=None if config is None else DataConfig.parse(config),
        data_digest=problem.data.evaluation.digest,
        target=problem.target,
        settings=problem.measurement_settings,
    )
    payload = request.to_json()
    try:
        if not is_read_from_files(config):
            return _warnings(problem, _check(ctx, payload))
        content = {**payload, "candidate": problem.source.key}
        key = [CHECK_SOURCE, content, problem.data.evaluation.digest, versions(), spoken()]
        _, reply = read_once(ctx.store.home, key, lambda _: _check(ctx, payload))
        return _warnings(problem, reply)
    except _SourceFails as failure:
        return [Note(unchecked())] if config is not None and failure.outcome is Outcome.TIMEOUT else []


class _SourceFails(Exception):
    """The source model cannot be run on its data, or takes too long."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome
        super().__init__(outcome)


def _check(ctx: RunContext, payload: JsonObject) -> JsonObject:
    problem, remaining = ctx.problem, ctx.attempt.remaining()
    result = first_call(
        ctx.resources,
        CHECK_SOURCE,
        dict(payload),
        subject=lambda: problem.source.artifact,
        limit=min(
            problem.limits.measure_seconds, max(RACE.check_share * remaining, min(RACE.check_seconds, remaining / 2))
        ),
        call=gated_call,
    )
    if not result.outcome.good or result.value is None:
        raise _SourceFails(result.outcome)
    return result.value


def _warnings(problem: Problem, reply: Mapping[str, Any]) -> list[Note]:
    if reply["stops"] and problem.goal.kept_task_metrics:
        raise InputError(reply["stops"][0], where=problem.data.evaluation.place, remedy=without_labels())
    return [Note(text, NoteKind.WARNING) for text in (*reply["stops"], *reply["warnings"])]


def script_warnings(ctx: RunContext, chains: Collection[Chain]) -> list[Note]:
    """Run each pass of the user's script once, at the first point of a chain; one warning for each that has a bug.

    A trial at that point reuses what has run.
    """
    script = str(ctx.problem.script.path)
    warnings: list[Note] = []
    checked: set[str] = set()
    for chain in chains:
        for node in chain.nodes:
            if node.info.origin != script or node.pass_name in checked:
                continue
            checked.add(node.pass_name)
            point = next(iter(chain.space.iterate()))
            progress = run_chain(ctx, nodes_up_to(chain, node.id), chain.space.configs(point))
            bug = script_bug(ctx, progress.outcome, progress.message)
            if bug:
                warnings.append(Note(f"your pass fails: {bug}", NoteKind.WARNING))
    return warnings


def script_bug(ctx: RunContext, outcome: Outcome | None, message: str) -> str:
    """Say how a pass of the user's script failed, with its file and, where known, its line; empty for other ends."""
    script, plan = str(ctx.problem.script.path), ctx.problem.plan
    if outcome not in (Outcome.FAILED, Outcome.CRASHED):
        return ""
    own = [info.name for info in map(plan.pass_info, plan.spec.passes) if info.origin == script]
    if message.partition(": ")[0] not in own:
        return ""
    return message if f" at {script}:" in message else f"{message} ({script})"
