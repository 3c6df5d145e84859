"""Samplers: each decides, from the history of trials, what to try next.

Read `base.py` first: a sampler is one method, `next`. `exhaustive`, `uniform`, `surrogate` and `optuna_sampler`
search the points of a space; `per_chain` (with `allocation`), `staged` and `nested` combine others.

To add a sampler, write a module with a `create` function and add one line to `autoopt/spec/samplers.py`.
"""
