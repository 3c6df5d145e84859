"""The initial design: what to try before there are results to learn from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from random import Random

from autoopt.search.history import History, steps_of
from autoopt.search.trial import ChainSpace
from autoopt.space import Point
from autoopt.tuning import SEARCH


def initial_points(
    chains: Sequence[ChainSpace], budget: int, seed: int, first: Sequence[tuple[str, Point]] = ()
) -> list[tuple[str, Point]]:
    """List the first points, the prior points, then one point of each chain; of many, of some that are unlike.

    Chains with first or prior points count among those. Without any, the search begins with a short chain and the first
    value of each parameter: what users and passes name first, and what can be turned on.
    """
    nonempty = [chain for chain in chains if chain.space.count]
    points = _prior_points(nonempty, first)
    begun = {chain for chain, _ in points}
    preferred = [chain for chain in nonempty if chain.id in begun]
    others = [chain for chain in nonempty if chain.id not in begun]
    # Shuffled, because the order in which these chains are listed carries no information.
    others = sorted(Random(f"{seed}:chains").sample(others, len(others)), key=_later)
    if len(nonempty) > SEARCH.diverse:
        others = diverse_chains(others, min(SEARCH.diverse, budget // 2) - len(preferred), preferred)
    drawn = [(chain.id, chain.space.random_sample(Random(f"{seed}:first:{chain.id}"))) for chain in others]
    if drawn and not points:
        drawn[0] = others[0].id, others[0].space[0]
    return points + drawn


def _prior_points(chains: Sequence[ChainSpace], first: Sequence[tuple[str, Point]]) -> list[tuple[str, Point]]:
    """The first points, then the prior points of the chains; those of chains that promise less than most come last.

    Chains take turns, because a slow search reaches only a few of their points.
    """
    ids = {chain.id for chain in chains}
    points = [each for each in first if each[0] in ids]
    prior = [(chain, place, point) for chain in chains for place, point in enumerate(chain.prior)]
    prior.sort(key=lambda each: (each[0].weight < 1, each[1], -each[0].weight))
    return points + [(chain.id, point) for chain, _, point in prior if (chain.id, point) not in points]


def _later(chain: ChainSpace) -> tuple[float, int]:
    """Sort key: chains of less weight later; of the same weight, those of more passes."""
    return -chain.weight, len(chain.passes)


def after_failures(points: Sequence[tuple[str, Point]], history: History, seed: int) -> Iterator[tuple[str, Point]]:
    """Yield another point of each chain all of whose points failed: a failure by chance must not hide a chain."""
    for chain_id, _ in points:
        trials = history.trials_of(chain_id)
        failed = [trial for trial in trials if trial.feedback is not None and trial.feedback.failed]
        if trials and len(trials) == len(failed) <= SEARCH.after_failures:
            yield chain_id, history.by_id[chain_id].space.random_sample(Random(f"{seed}:again:{chain_id}"))


def first_untried(points: Iterable[tuple[str, Point]], history: History) -> tuple[str, Point] | None:
    """Return the first of the points that has no trial yet and may give a new candidate; None if there is none."""
    for chain, point in points:
        if history.find(chain, point) is None:
            steps = steps_of(history.by_id[chain].nodes, point)
            if history.known(steps) is None:
                return chain, point
    return None


def diverse_chains(chains: Sequence[ChainSpace], number: int, selected: Sequence[ChainSpace] = ()) -> list[ChainSpace]:
    """Select a number of chains: the first one, then repeatedly the one that differs most from all selected ones.

    Chains differ by the Jaccard distance of their sets of passes. `selected`: chains that are selected already.
    """
    passes = [{name for _, name in chain.passes} for chain in chains]
    distance = [2.0] * len(chains)

    def update(names: set[str]) -> None:
        for index, others in enumerate(passes):
            if distance[index] >= 0:
                union, shared = len(others | names), len(others & names)
                distance[index] = min(distance[index], 1 - shared / max(1, union))

    for chain in selected:
        update({name for _, name in chain.passes})
    selection: list[ChainSpace] = []
    for _ in range(min(number, len(chains))):
        index = distance.index(max(distance))
        selection.append(chains[index])
        distance[index] = -1.0
        update(passes[index])
    return selection
