"""Plans without a run, and proposals for a model without a DAG. Imports no native library.

Read `plan.py` first.
"""
