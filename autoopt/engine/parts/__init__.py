"""Runs over several targets, or over a model set, whose models belong together: one part for each, one choice for all.

Read `run_of_parts.py` first.
"""
