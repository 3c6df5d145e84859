"""Rewrite rules that no library has, each with the guard that keeps it correct.

`fusion.rule_passes` has the passes and the table of rules, `rule` the base class. The other modules hold the rules.
"""
