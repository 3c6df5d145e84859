"""Runs and sweeps as flow runs.

`in_process` runs a search in this process with its chains as sub-flows; read it first. `model_run`, `chain_run` and
`sweep_run` are the bodies of the deployed flows; `chain_executor` connects a model's flow run with those of its chains.
"""
