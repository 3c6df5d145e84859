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

    sampler = getattr(optuna.samplers, name)
    parameters = inspect.signature(sampler).parameters
    options: dict[str, object] = {}
    if "seed" in parameters:
        options["seed"] = seed
    if "warn_independent_sampling" in parameters:
        options["warn_independent_sampling"] = False
    with quiet():
        created: optuna.samplers.BaseSampler = sampler(**options)
    return created


def follows_sequence(sampler: optuna.samplers.BaseSampler) -> bool:
    """Tell if a sampler goes through one sequence of its own, so that a new seed would start it again."""
    import optuna

    return isinstance(sampler, optuna.samplers.QMCSampler)
