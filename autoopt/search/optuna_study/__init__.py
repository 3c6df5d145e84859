"""Optuna's side of the search: points as parameters of Optuna trials, and studies.

Read `encoding.py` first. Optuna is imported only when a study is made.
"""
