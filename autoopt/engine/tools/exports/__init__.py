"""Runs and releases in the form of other tools: Optuna, MLflow, object stores, OCI images.

Read `content` first: it collects what studies, MLflow runs and events show of a run. `release_places` publishes the
model of a release; `object_store` and `oci_layout` are two of its places.
"""
