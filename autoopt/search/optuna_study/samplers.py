"""Optuna samplers by class name."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from autoopt.search.optuna_study.study import quiet

if TYPE_CHECKING:
    import optuna


def create_optuna_sampler(name: str, seed: int) -> optuna.samplers.BaseSampler:
    """Create the Optuna sampler of class `name`, quiet, with `seed` if it takes one."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = getattr(optuna.samplers, name)
    parameters = inspect.signature(sampler).parameters
    options = {"seed": seed, "warn_independent_sampling": False}
    with quiet():
        created: optuna.samplers.BaseSampler = sampler(**{n: v for n, v in options.items() if n in parameters})
    return created
