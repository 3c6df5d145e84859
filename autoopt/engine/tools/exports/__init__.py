"""Runs in the form of other tools: Optuna studies, MLflow runs, OpenLineage events.

Read `content` first: it collects what all of them show of a run.
"""
