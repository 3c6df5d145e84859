"""Rewrite rules that no library has, each with the guard that keeps it correct.

`local_rewrites` is the pass, `rule_table` the list of rules, and `rule` the base class. The modules with the rules
import onnxscript; only `rule_table.rules` imports them.
"""
