"""The body of the deployed flow `tune_chain`: the trials of one chain of a run that another flow run has begun."""

from __future__ import annotations

import time
from uuid import UUID

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.runtime import flow_run
from prefect.states import Failed

from autoopt.engine.run.join import JoinedRun, join
from autoopt.errors import AutooptError, TimeUp
from autoopt.orchestrate.flow_runs import naming
from autoopt.orchestrate.flow_runs.artifacts import show_chain
from autoopt.orchestrate.flow_runs.naming import chain_state, headlines, session_run_name, trial_state
from autoopt.orchestrate.flow_runs.run_log import log_trial, run_logger
from autoopt.orchestrate.flow_runs.server_settings import use_server_settings
from autoopt.orchestrate.flow_runs.worker_slot import WorkerSlot
from autoopt.results import Trial
from autoopt.script import only_allowed_scripts
from autoopt.store import TrialRecord
from autoopt.store.finished import finished_trials

LINGER_SECONDS = 600.0
"""An idle flow run waits this long for further trials, unless its slot is needed; a later trial gets a new one."""
POLL_SECONDS = 0.3


@only_allowed_scripts()
def tune(run: str, chain: str) -> State[None]:
    """Execute trials of a chain for as long as there are any.

    A retried flow run, or one of a run that has ended, repeats the chain's failed trials.
    """
    use_server_settings()
    try:
        with join(run) as joined:
            retried = flow_run.run_count > 1 or not joined.is_running
            if retried:
                joined.retry_failures(chain)
            executed = _run_trials(joined, chain)
            if retried and executed and not joined.is_running:
                joined.conclude()
            names = (session_run_name(joined.session), joined.session.chains[chain].name)
            show_chain(joined.store, run, chain, *names)
            trials = finished_trials(joined.store, run, chain)
    except AutooptError as error:
        return Failed(message=str(error))
    return chain_state([trial.result for trial in trials], executed)


def _run_trials(joined: JoinedRun, chain: str) -> int:
    """Claim and execute trials until none is left, or enough for one flow run; returns their number."""
    claimed: dict[int, TrialRecord] = {}

    @task(name="trial", task_run_name="trial {number}", cache_policy=NO_CACHE, persist_result=False)
    def trial(number: int) -> State[None]:
        result = joined.execute(claimed[number]).result
        log_trial(run_logger(), Trial(number, joined.session.chains[chain].name, result), headlines(joined.session))
        return trial_state(result, joined.session)

    executed = 0
    idle_since = time.monotonic()
    with WorkerSlot(joined.store, joined.record.id, UUID(str(flow_run.id))) as slot:
        while executed < naming.MAX_TRIALS and time.monotonic() - idle_since < LINGER_SECONDS:
            # An idle flow run does no work either while a latency is being measured.
            ctx = joined.session.ctx
            try:
                with ctx.resources.gate.working(time.monotonic() + ctx.attempt.remaining()):
                    pass
            except TimeUp:
                break
            row = joined.claim_trial(chain)
            if row is None:
                if not joined.is_running or slot.is_needed():
                    break
                time.sleep(POLL_SECONDS)
                continue
            claimed[row.number] = row
            trial(row.number, return_state=True)
            executed += 1
            idle_since = time.monotonic()
    return executed
