"""A run over several targets: one part for each, and the best single model for all.

Read `multi_target.py` first.
"""
