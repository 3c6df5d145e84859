"""Flow `tune_chain`: execute the trials of one chain of a run, as a deployed run that can be cancelled and retried."""

from __future__ import annotations

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.runtime import flow_run

from autoopt.engine.run.join import join
from autoopt.orchestrate.artifacts import show_chain
from autoopt.orchestrate.deployed_chains import claimed_jobs
from autoopt.orchestrate.executor import TrialTasks, failed_state
from autoopt.orchestrate.names import run_name
from autoopt.script import only_allowed_scripts


@flow(name="tune_chain")
def tune_chain(run: str, chain: str) -> State[None]:
    """Execute the trials of one chain that the store lacks.

    A run with `chains: deployed` starts it. Retry, and a run of it after the model's run has ended, repeat the chain's
    failed trials.

    Args:
        run: id of the run in the store.
        chain: id of the chain.
    """
    try:
        with only_allowed_scripts(), join(run) as joined:
            session = joined.session
            retried = flow_run.run_count > 1 or not joined.is_running
            if retried:
                joined.retry_failures()
            trials = TrialTasks(session)
            for job in claimed_jobs(joined, chain):
                trials.submit(job)
                trials.wait()
            if retried and trials.results and not joined.is_running:
                joined.conclude()
            show_chain(joined.store, run, chain, run_name(session), session.ctx.chains[chain].name)
            return trials.state()
    except Exception as error:
        return failed_state(error)
