"""Sweeps: one run for each model of a zoo, compared with earlier sweeps.

Read `sweep.py` first.
"""
