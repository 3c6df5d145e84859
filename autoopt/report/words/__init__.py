"""Figures in the words of people: how values, changes and answers are written.

Read `formatting` first, which writes single values; `change` writes a candidate beside its source, and `verdict` the
answer of a run.
"""
