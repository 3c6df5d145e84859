"""One chain searched by nesting: for each point of the outer passes, the inner passes are searched. Light."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from random import Random

from autoopt.metrics import Objective
from autoopt.search.history import History
from autoopt.search.losses import rank_key
from autoopt.search.samplers.base import Decision, Sampler, Stop, Suggestion, exhausted
from autoopt.search.samplers.staged import Tuners
from autoopt.search.samplers.subspace import SubspaceSampler, part_of
from autoopt.search.trial import ChainSpace, Feedback, Trial
from autoopt.space import Point

OUTER, INNER = "outer", "inner"


class NestedSampler:
    """Whole chains only. An outer point is worth what the best of its inner points is.

    Each outer point gets its inner search of at least sqrt(budget) trials before the next outer point is chosen; when
    the outer points are used up, the inner searches go on with twice as many, and so on.
    """

    def __init__(
        self,
        chain: ChainSpace,
        groups: Sequence[tuple[str, ...]],
        tuners: Tuners,
        *,
        budget: int,
        objectives: Sequence[Objective],
    ) -> None:
        self._chain, self._groups, self._tuners = chain, tuple(groups), tuners
        self._objectives, self._budget = objectives, max(1, budget)
        self._rest = tuple(node for node in chain.space.nodes if node not in self._groups[0])
        part = self._outer_part()
        self._outer = SubspaceSampler([part], objectives, tuners([part]))
        self._inner: dict[int, SubspaceSampler] = {}
        self._share = max(math.isqrt(self._budget - 1) + 1, self._budget // max(1, part.space.count))

    def next(self, history: History, rng: Random) -> Decision:
        mine = history.of_chain(self._chain.id)
        outer = self._outer_trials(mine)
        self._outer.follow([(OUTER, point, _worth(trials, self._objectives)) for point, trials in outer])
        share = self._share
        while True:
            busy = [
                i for i, (_, trials) in enumerate(outer) if len(trials) < share and not self._search(i, outer).exhausted
            ]
            if busy:
                return self._ask_inner(busy[0], outer, rng)
            if not self._outer.exhausted:
                answer = self._outer.next(rng)
                if isinstance(answer, Suggestion):
                    outer.append((answer.point, []))
                    return self._ask_inner(len(outer) - 1, outer, rng)
                if not isinstance(answer, Stop):
                    return answer
            if all(self._search(i, outer).exhausted for i in range(len(outer))):
                return exhausted(self._chain)
            share *= 2

    def _outer_part(self) -> ChainSpace:
        """The outer passes' space, without points that leave the inner passes nothing."""
        part = part_of(self._chain, self._groups[0], {}, OUTER)
        if not self._chain.space.cuts:
            return part
        dead = [p for p in part.space.iterate() if not part_of(self._chain, self._rest, p, INNER).space.count]
        return replace(part, space=replace(part.space, cuts=(*part.space.cuts, *dead)))

    def _outer_trials(self, mine: Sequence[Trial]) -> list[tuple[Point, list[Trial]]]:
        """Outer points in the order met, each with its trials."""
        found: list[tuple[Point, list[Trial]]] = []
        for trial in mine:
            point = {n: values for n, values in trial.proposal.point.items() if n in self._groups[0]}
            for known, trials in found:
                if known == point:
                    trials.append(trial)
                    break
            else:
                found.append((point, [trial]))
        return found

    def _search(self, index: int, outer: Sequence[tuple[Point, list[Trial]]]) -> SubspaceSampler:
        """The inner search at the outer point of that index, in step with its trials."""
        point, trials = outer[index]
        if index not in self._inner:
            part = part_of(self._chain, self._rest, point, INNER)
            self._inner[index] = SubspaceSampler([part], self._objectives, self._chooser(part))
        inner = [{n: v for n, v in t.proposal.point.items() if n in self._rest} for t in trials]
        self._inner[index].follow([(INNER, p, t.feedback) for p, t in zip(inner, trials, strict=True)])
        return self._inner[index]

    def _chooser(self, part: ChainSpace) -> Sampler:
        if len(self._groups) == 2:
            return self._tuners([part])
        return NestedSampler(part, self._groups[1:], self._tuners, budget=self._share, objectives=self._objectives)

    def _ask_inner(self, index: int, outer: Sequence[tuple[Point, list[Trial]]], rng: Random) -> Decision:
        answer = self._search(index, outer).next(rng)
        if not isinstance(answer, Suggestion):
            return answer
        whole = {**outer[index][0], **answer.point}
        return Suggestion(self._chain.id, {node: whole[node] for node in self._chain.nodes if node in whole})


def _worth(trials: Sequence[Trial], objectives: Sequence[Objective]) -> Feedback | None:
    """The best feedback of the trials; None while none is told or one is running."""
    if not trials or any(trial.feedback is None for trial in trials):
        return None
    return min((t.feedback for t in trials if t.feedback), key=lambda f: rank_key(f, objectives))
