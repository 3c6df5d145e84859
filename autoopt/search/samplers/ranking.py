"""Trials from best to worst, for one objective or for several."""

from __future__ import annotations

from collections.abc import Sequence

from autoopt.metrics import Objective
from autoopt.search.losses import Losses, feasible, losses, rank_key
from autoopt.search.pareto import front_numbers
from autoopt.search.trial import Trial


def best_first(trials: Sequence[Trial], objectives: Sequence[Objective]) -> list[Trial]:
    """Sort trials from best to worst.

    With several objectives, those of the Pareto front come first, then those of the front of the others, and so on.
    """
    ranked = sorted(trials, key=lambda trial: rank_key(trial.feedback, objectives))
    if len(objectives) == 1:
        return ranked
    complete: dict[int, Losses] = {}
    for place, trial in enumerate(ranked):
        loss = losses(trial.feedback, objectives)
        if loss is not None and feasible(trial.feedback):
            complete[place] = loss
    numbers = dict(zip(complete, front_numbers(list(complete.values())), strict=True))
    places = sorted(range(len(ranked)), key=lambda place: (numbers.get(place, len(ranked)), place))
    return [ranked[place] for place in places]
