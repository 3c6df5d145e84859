"""Runs and sweeps as flow runs.

`showing` shows the runs of `autoopt run` in Prefect; read it first, then `shown_run`. `model_run`, `chain_run` and
`sweep_run` are the bodies of the deployed flows; `chain_executor` connects a model's flow run with those of its chains.
"""
