"""Samplers: each decides, from the history of trials, what to try next.

Read `base.py` first: a sampler is one method, `next`. `plain`, `surrogate` and `optuna_sampler` search the points of a
space; `per_chain`, `staged` and `nested` combine others, and so does `fixed_shares` beside this package.

To add a sampler, write a class that takes `SamplerInputs`, and add one line to the list in `autoopt/spec/search.py`.
"""
