"""Runs in the form of other tools: Optuna, MLflow, object stores.

Read `content` first: it collects what studies and MLflow runs show of a run. `object_store` is a place for releases.
"""
