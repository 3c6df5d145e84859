"""The best candidate with other settings at run time, such as one thread: a trial without any new pass on a model."""

from __future__ import annotations

from collections.abc import Sequence

from autoopt.search.history import History
from autoopt.search.losses import rank_key
from autoopt.search.samplers.initial_points import first_untried
from autoopt.search.trial import ChainSpace, Trial
from autoopt.space import Point
from autoopt.tuning import SEARCH


def with_first_settings(chains: Sequence[ChainSpace], history: History) -> tuple[str, Point] | None:
    """The best point so far with the first settings that its chain lacks; None if they are tried or lost twice.

    None with several objectives too: settings change the latency alone, which enlarges a front little, and a trial of
    nearly the same point tells the models little about all others.
    """
    if len(history.objectives) > 1:
        return None
    tried = [trial for chain in chains for trial in history.trials_of(chain.id) if trial.proposal.upto is None]
    best = best_of(tried, history)
    if best is None:
        return None
    extensions = {chain.nodes[:-1]: chain for chain in chains if chain.sets_only_run}
    extension = extensions.get(history.by_id[best.proposal.chain].nodes)
    if extension is None or sum(_lost(trial, history) for trial in tried) >= SEARCH.max_losses:
        return None
    point = _first(extension, best.proposal.point)
    if point is None:
        return None
    return first_untried([(extension.id, point)], history)


def best_of(trials: Sequence[Trial], history: History) -> Trial | None:
    """Return the best trial; None if none meets the constraints."""
    best = min(trials, key=lambda trial: rank_key(trial.feedback, history.objectives), default=None)
    if best is None or best.feedback is None or best.feedback.failed or best.feedback.violation > 0:
        return None
    return best


def _lost(trial: Trial, history: History) -> bool:
    """Tell if settings were no better than the same point without them."""
    chain = history.by_id[trial.proposal.chain]
    if not chain.sets_only_run or trial.feedback is None:
        return False
    settings = chain.nodes[-1]
    point = {node: values for node, values in trial.proposal.point.items() if node != settings}
    for other in history.chains:
        if other.nodes == chain.nodes[:-1]:
            base = history.find(other.id, point)
            if base is not None and base.feedback is not None:
                objectives = history.objectives
                return rank_key(trial.feedback, objectives) >= rank_key(base.feedback, objectives)
    return False


def _first(chain: ChainSpace, point: Point) -> Point | None:
    """The point with the first settings that the chain allows."""
    settings = chain.nodes[-1]
    for values in chain.space.nodes[settings].iterate():
        extended = {**point, settings: values}
        if chain.space.allows(extended):
            return extended
    return None
