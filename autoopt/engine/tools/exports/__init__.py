"""Runs and releases in the form of other tools: Optuna, MLflow, object stores.

Read `content` first: it collects what studies and MLflow runs show of a run. `release_places` publishes the model of a
release; `object_store` is one of its places.
"""
