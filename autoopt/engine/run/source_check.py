"""Warn before the search if the source model and its data do not seem to belong together."""

from __future__ import annotations

from typing import Final

from autoopt.data.config import DataConfig
from autoopt.engine.work.calls import first_call
from autoopt.engine.work.context import RunContext
from autoopt.engine.work.problem import Problem
from autoopt.measure.request import MeasureRequest, ModelFile
from autoopt.report.failures import plain_reason
from autoopt.results.run import WARNING

CHECK_SOURCE: Final = "autoopt.measure.worker:check_source"


def source_failure(problem: Problem, message: str) -> str:
    """Say that the source model does not run, on which inputs, and what the runtime says."""
    inputs = "" if problem.data.evaluation else " on generated inputs (--data FILE gives it real ones)"
    return f"the source model does not run{inputs}: {plain_reason(message)}"


def source_warnings(ctx: RunContext) -> list[str]:
    """Run the source model on some items of the data; one warning for each sign of trouble.

    A model that cannot be run says so when it is measured. Only this machine's interpreter is asked.
    """
    problem = ctx.problem
    config = problem.data.evaluation.config
    if config is None or problem.host.type != "local":
        return []
    request = MeasureRequest(
        candidate=ModelFile(ctx.model_path(problem.source), problem.source.session_options),
        metrics=tuple(metric.name for metric in problem.goal.metrics),
        data=DataConfig.parse(config),
        target=problem.target,
        settings=problem.measurement_settings,
        user_script=problem.script.path,
    )
    result = first_call(
        ctx.resources,
        CHECK_SOURCE,
        request.to_json(),
        subject=lambda: problem.source.artifact,
        limit=problem.limits.measure_seconds,
    )
    if not result.outcome.good or result.value is None:
        return []
    return [f"{WARNING}{text}" for text in result.value["warnings"]]
