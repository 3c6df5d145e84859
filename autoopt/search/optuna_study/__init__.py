"""Optuna's side of the search: points as parameters of Optuna trials, studies, and Optuna's samplers by name.

Read `encoding.py` first. Optuna is imported only when a study or a sampler is made.
"""
