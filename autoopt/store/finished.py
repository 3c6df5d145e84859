"""The result and the finished trials of a run, as reports take them."""

from __future__ import annotations

from dataclasses import replace

from autoopt.errors import InputError
from autoopt.results import RunResult, Trial
from autoopt.store.records import RunRecord
from autoopt.store.store import Store


def finished_trials(store: Store, run: str, chain: str | None = None) -> list[Trial]:
    """Return the finished trials of a run, or of one of its chains by its id, by number."""
    return [trial for trial in store.trials.all(run) if trial.status == "done" and chain in (None, trial.chain_id)]


def result_of(run: RunRecord) -> RunResult:
    """Return the result of a run, or the best of its trials so far.

    Raises:
        InputError: the run has no trial yet, or was interrupted or failed before its first one.
    """
    if has_result(run):
        result = _result(run)
        return result if run.status == "finished" else replace(result, status=run.shown_status)
    message = f"run {run.id} is {run.shown_status}"
    reason = run.result.get("error")
    if run.status == "failed":
        message = f"run {run.id} failed"
    if reason:
        message += f": {reason}"
    remedy = f"continue with: autoopt resume {run.id}"
    if run.shown_status == "running":
        remedy = "no trial has finished yet"
    elif run.status == "failed":
        remedy = "name a run that has a result, as 'autoopt runs' lists them"
    raise InputError(message, remedy=remedy)


def has_result(run: RunRecord) -> bool:
    """True for a finished run, and for one that has completed trials so far."""
    return bool(run.result) and (run.status == "finished" or "baseline" in run.result)


def _result(run: RunRecord) -> RunResult:
    try:
        return RunResult.from_json(run.result)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(f"the result of run {run.id} cannot be read ({error})") from None
