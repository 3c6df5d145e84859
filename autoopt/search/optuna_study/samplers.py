"""Optuna samplers by name."""

from __future__ import annotations

import inspect
from functools import lru_cache
from typing import TYPE_CHECKING

from autoopt.errors import InputError, did_you_mean
from autoopt.search.optuna_study.study import quiet

if TYPE_CHECKING:
    import optuna


def make_sampler(name: str, seed: int) -> optuna.samplers.BaseSampler:
    """An Optuna sampler by class name (`NSGAIISampler`) or short name (`nsgaii`, `tpe`, `qmc`, `cmaes`).

    Raises:
        InputError: no such sampler, it cannot be made without arguments, or it needs a library that is not installed.
    """
    import optuna

    known = {n: getattr(optuna.samplers, n) for n in optuna.samplers.__all__ if n.endswith("Sampler")}
    short = {n.removesuffix("Sampler").lower(): n for n in known if not n.startswith("Base")}
    found = known.get(name) or known.get(short.get(name.lower().replace("_", "").replace("-", ""), ""))
    if found is None or name.startswith("Base"):
        hint = did_you_mean(name, [*short, *known]) or f"known: exhaustive, surrogate, {', '.join(sorted(short))}"
        raise InputError(f"unknown sampler {name!r}", where="search", remedy=hint)
    try:
        _probe(found)
    except (TypeError, ImportError) as error:
        raise InputError(f"sampler {name!r} cannot be used here: {error}", where="search") from error
    return _made(found, seed)


def _made(sampler: type[optuna.samplers.BaseSampler], seed: int) -> optuna.samplers.BaseSampler:
    takes = inspect.signature(sampler).parameters
    options = {"seed": seed, "warn_independent_sampling": False}
    with quiet():
        return sampler(**{name: value for name, value in options.items() if name in takes})


@lru_cache
def _probe(sampler: type[optuna.samplers.BaseSampler]) -> None:
    """Let a sampler run for a moment: some load the library they need only when they first have something to learn."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with quiet():
        study = optuna.create_study(sampler=_made(sampler, 0))
        for _ in range(12):
            trial = study.ask()
            study.tell(trial, trial.suggest_float("x", 0, 1, step=0.1) + trial.suggest_int("y", 0, 5))
