"""One chain searched by nesting: for each point of the outer passes, the inner passes are searched."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

from autoopt.metrics import Objective
from autoopt.search.history import History
from autoopt.search.losses import rank_key
from autoopt.search.samplers.base import Decision, Sampler, Stop, Suggestion, exhausted
from autoopt.search.samplers.chain_parts import SubspaceSampler, join_points, restrict_chain, restrict_point
from autoopt.search.samplers.staged import CreateOverParts
from autoopt.search.trial import ChainSpace, Feedback, Proposal
from autoopt.space import Point

OUTER: Final = "outer"
INNER: Final = "inner"


@dataclass
class _OuterPoint:
    """A point of the outer passes, the trials at it, and the search of the inner passes there."""

    point: Point
    inner: SubspaceSampler
    trials: list[Proposal] = field(default_factory=list)


class NestedSampler:
    """Suggests whole chains. An outer point is worth as much as the best of its inner points.

    Each outer point gets an inner search of at least sqrt(budget) trials before the next outer point is chosen. Once
    the outer points are used up, the inner searches continue with twice as many trials, and so on.
    """

    def __init__(
        self,
        chain: ChainSpace,
        groups: Sequence[tuple[str, ...]],
        create: CreateOverParts,
        *,
        budget: int,
        objectives: Sequence[Objective],
    ) -> None:
        self._chain = chain
        self._groups = tuple(groups)
        self._create = create
        self._objectives = objectives
        self._inner_nodes = tuple(node for node in chain.space.nodes if node not in self._groups[0])
        part = self._outer_part()
        self._outer = SubspaceSampler([part], objectives, create([part]))
        self._points: list[_OuterPoint] = []
        budget = max(1, budget)
        # The square root rounded up, or more if few outer points would leave a part of the budget unused.
        self._share = max(math.isqrt(budget - 1) + 1, budget // max(1, part.space.count))

    def next(self, history: History, rng: Random) -> Decision:
        """Suggest a point at the first outer point that has not had its share, or at a new one."""
        self._follow(history.trials_of(self._chain.id))
        share = self._share
        while True:
            for outer in self._points:
                if len(outer.trials) < share and not outer.inner.exhausted:
                    return self._suggest(outer, rng)
            if not self._outer.exhausted:
                decision = self._outer.next(rng)
                if isinstance(decision, Suggestion):
                    return self._suggest(self._outer_point(decision.point), rng)
                if not isinstance(decision, Stop):
                    return decision
            if all(outer.inner.exhausted for outer in self._points):
                return exhausted(self._chain.space.count)
            share *= 2

    def _outer_part(self) -> ChainSpace:
        """The space of the outer passes, without points that leave the inner passes no point."""
        part = restrict_chain(self._chain, self._groups[0], {}, OUTER)
        if not self._chain.space.cuts:
            return part
        cuts = list(part.space.cuts)
        for point in part.space.iterate():
            inner = restrict_chain(self._chain, self._inner_nodes, point, INNER)
            if inner.space.count == 0:
                cuts.append(point)
        return replace(part, space=replace(part.space, cuts=tuple(cuts)))

    def _follow(self, trials: Sequence[Proposal]) -> None:
        """Bring all searches up to date with the trials of the chain."""
        for outer in self._points:
            outer.trials.clear()
        for trial in trials:
            self._outer_point(restrict_point(trial.point, self._groups[0])).trials.append(trial)
        for outer in self._points:
            inner_trials = []
            for trial in outer.trials:
                point = restrict_point(trial.point, self._inner_nodes)
                inner_trials.append((INNER, point, trial.feedback))
            outer.inner.follow(inner_trials)
        self._outer.follow([(OUTER, outer.point, _worth(outer.trials, self._objectives)) for outer in self._points])

    def _outer_point(self, point: Point) -> _OuterPoint:
        """Find an outer point, or add it."""
        for outer in self._points:
            if outer.point == point:
                return outer
        part = restrict_chain(self._chain, self._inner_nodes, point, INNER)
        sampler: Sampler
        if len(self._groups) == 2:
            sampler = self._create([part])
        else:
            inner = self._groups[1:]
            sampler = NestedSampler(part, inner, self._create, budget=self._share, objectives=self._objectives)
        outer = _OuterPoint(point, SubspaceSampler([part], self._objectives, sampler))
        self._points.append(outer)
        return outer

    def _suggest(self, outer: _OuterPoint, rng: Random) -> Decision:
        decision = outer.inner.next(rng)
        if not isinstance(decision, Suggestion):
            return decision
        return Suggestion(self._chain.id, join_points(self._chain, outer.point, decision.point))


def _worth(trials: Sequence[Proposal], objectives: Sequence[Objective]) -> Feedback | None:
    """Return the best feedback of the trials; None while one is running, or without trials."""
    feedback = [trial.feedback for trial in trials if trial.feedback is not None]
    if not trials or len(feedback) < len(trials):
        return None
    return min(feedback, key=lambda result: rank_key(result, objectives))
