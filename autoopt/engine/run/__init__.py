"""A run on one target: baseline, search loop, confirmation of the best, result.

Read `session.py` first, then `loop.py` and `trial.py`.
"""
