"""Flow `tune_chain`: the trials of one chain of a run. Started by `optimize_model`; can be retried at any time."""

from __future__ import annotations

from typing import Any

from prefect import flow

from autoopt.orchestrate.flow_runs.chain_run import tune


@flow(name="tune_chain")
def tune_chain(run: str, chain: str, round: int = 1) -> Any:
    """Carry out what the store lacks of one chain.

    Args:
        run: id of the run in the store.
        chain: id of the chain.
        round: which of the chain's flow runs this is.
    """
    return tune(run, chain)
