"""The engine: takes a request to its result.

`prepare.prepare` is the entry point: it has the request resolved (`autoopt.problem`) and opens a run for one target
(`run`), for several (`targets`) or for several models that belong together (`model_sets`). `work` holds the two units
of reuse, pass runs and evaluations, and what they need. `tools` are single operations beside runs. Its packages import
downwards only: tools > prepare > targets, model_sets > run > work. Read `run/session.py` first.
"""
