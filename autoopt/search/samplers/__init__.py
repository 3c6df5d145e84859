"""Samplers: each decides, from the history of trials, what to try next.

Read `base.py` first: a sampler is one method, `next`. `exhaustive`, `uniform`, `small_surrogate`, `surrogate` and
`optuna_sampler` search a space; `per_chain`, `staged` and `nested` compose other samplers.
"""
