"""A run over several targets: one part for each, and the choice among their best models.

Read `multi_target.py` first.
"""
