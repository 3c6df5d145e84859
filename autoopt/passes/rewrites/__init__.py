"""Rewrite rules that no library has, each with the guard that keeps it correct.

`local_rewrites` is the pass with the table of rules, and `rule` the base class. The other modules hold the rules.
"""
