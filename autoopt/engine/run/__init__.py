"""A run on one target: baseline, search loop, race of the best candidates, result.

Read `session.py` first, then `loop.py`, `trial.py` and `race.py`.
"""
