"""Figures in the words of people: which metrics are shown, how values, changes and answers are written.

Read `figures` first: it decides which metrics are shown. `formatting` writes single values, `change` a candidate beside
its source, and `verdict` the answer of a run.
"""
