"""A run over a model set, several models that belong together: one part for each, then the choice by the whole set.

Read `set_run.py` first.
"""
