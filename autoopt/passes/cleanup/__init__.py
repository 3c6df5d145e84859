"""Removal of what computes nothing, constant folding, and whole-graph simplifiers.

Read `graph_cleanup` first: single steps. `simplifiers` calls libraries that combine them.
"""
