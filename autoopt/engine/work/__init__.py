"""Pass runs and evaluations: looked up by content key, claimed, executed on a host and recorded.

Read `pass_runs.py` and `evaluations.py` first; `context.py` holds what they share.
"""
