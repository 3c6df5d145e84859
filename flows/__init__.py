"""The Prefect flows: their parameters, which are the fields of the forms that start them, and what they do.

`optimize_model` searches for one model, `tune_chain` executes the trials of one of its chains, `nightly_sweep` runs a
zoo. Deployments refer to them by name.
"""
