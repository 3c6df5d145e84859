"""Flow `tune_chain`: execute the trials of one chain of a run. Started by `optimize_model`; can be retried any time."""

from __future__ import annotations

from prefect import flow
from prefect.client.schemas.objects import State

from autoopt.orchestrate.flow_runs.chain_run import tune


@flow(name="tune_chain")
def tune_chain(run: str, chain: str, round: int = 1) -> State[None]:
    """Execute the trials of one chain that the store lacks.

    Args:
        run: id of the run in the store.
        chain: id of the chain.
        round: number of this flow run among those of the chain.
    """
    return tune(run, chain)
