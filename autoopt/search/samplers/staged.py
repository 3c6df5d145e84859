"""One chain searched stage by stage: the best partial chains of a stage are where the next one starts. Light."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from autoopt.metrics import Objective
from autoopt.search.history import History
from autoopt.search.losses import rank_key
from autoopt.search.samplers.base import WAIT, Decision, Sampler, Stop, Suggestion
from autoopt.search.samplers.subspace import SubspaceSampler, part_of
from autoopt.search.trial import ChainSpace, Trial
from autoopt.space import Point

Tuners = Callable[[Sequence[ChainSpace]], Sampler]
"""Makes the chooser of one stage, over its parts."""


@dataclass
class _Stage:
    """A stage under way: its search, and the points kept before it by the name of the part that starts from them."""

    nodes: tuple[str, ...]
    upto: str | None
    starts: dict[str, Point]
    search: SubspaceSampler
    seen: dict[str, tuple[str, Point]] = field(default_factory=dict)
    """Key of a trial -> part and point within it, in the order met."""


class StagedSampler:
    """Proposes partial chains up to the end of a stage, then goes on from the `keep` best of them.

    A stage gets an equal share of the chain's `budget` and goes on beyond it only while nothing in it worked. What
    another chain with the same beginning has tried counts here too. A stage without a choice is not measured.
    """

    def __init__(
        self,
        chain: ChainSpace,
        groups: Sequence[tuple[str, ...]],
        tuners: Sequence[Tuners],
        *,
        keep: int,
        budget: int,
        objectives: Sequence[Objective],
        node_objectives: Mapping[str, Sequence[Objective]],
    ) -> None:
        self._chain, self._groups, self._tuners = chain, tuple(groups), tuple(tuners)
        self._keep, self._budget = keep, budget
        self._objectives, self._node_objectives = objectives, node_objectives
        self._stages: dict[int, _Stage] = {}

    def next(self, history: History, rng: Random) -> Decision:
        kept: list[Point] = [{}]
        spent = 0
        for index in range(len(self._groups)):
            stage = self._stage(index, kept)
            if stage.upto is not None and self._choices(stage) <= self._keep:
                kept = [self._join(stage, part, p) for part, c in stage.search.parts.items() for p in c.space.iterate()]
                continue
            trials = self._follow(stage, history)
            worked = self._ranked(stage, trials)
            share = max(1, math.ceil((self._budget - spent) / (len(self._groups) - index)))
            answer = self._in_stage(stage, trials, bool(worked), share, rng)
            if answer is not None:
                return answer
            kept = worked[: self._keep]
            spent += len(trials)
        return Stop("all stages are done")

    def _in_stage(self, stage: _Stage, trials: list[Trial], worked: bool, share: int, rng: Random) -> Decision | None:
        """What to try in this stage; None when it is done."""
        running = any(trial.feedback is None for trial in trials)
        more = not stage.search.exhausted
        if more and (len(trials) < share or stage.upto is None or not (worked or running)):
            return self._pick(stage, rng)
        if stage.upto is None:
            return None
        if running:
            return WAIT
        return None if worked else Stop("no partial chain of this stage works, or cuts leave none")

    def _stage(self, index: int, kept: list[Point]) -> _Stage:
        if index not in self._stages:
            nodes = self._groups[index]
            starts = {str(place): point for place, point in enumerate(kept)}
            parts = [part_of(self._chain, nodes, point, name) for name, point in starts.items()]
            last = index == len(self._groups) - 1
            goals = self._objectives if last else self._node_objectives.get(nodes[-1], self._objectives)
            search = SubspaceSampler(parts, goals, self._tuners[index](parts))
            self._stages[index] = _Stage(nodes, None if last else nodes[-1], starts, search)
        return self._stages[index]

    @staticmethod
    def _choices(stage: _Stage) -> int:
        return sum(part.space.count for part in stage.search.parts.values())

    def _join(self, stage: _Stage, part: str, point: Point) -> Point:
        whole = {**stage.starts[part], **point}
        return {node: whole[node] for node in self._chain.nodes if node in whole}

    def _follow(self, stage: _Stage, history: History) -> list[Trial]:
        """The stage's trials so far, also those of chains with the same beginning, in the order asked."""
        found: dict[str, Trial] = {}
        for trial in history.trials:
            place = self._place(stage, trial, history)
            if place is not None:
                key = history.key(self._chain.id, self._join(stage, *place), stage.upto)
                if key not in found:
                    found[key] = trial
                    stage.seen.setdefault(key, place)
        stage.search.follow([(*stage.seen[key], trial.feedback) for key, trial in found.items()])
        return list(found.values())

    def _place(self, stage: _Stage, trial: Trial, history: History) -> tuple[str, Point] | None:
        """The part and point that a trial stands for in this stage, None where it is another work."""
        proposal = trial.proposal
        if (proposal.upto is None) != (stage.upto is None) or proposal.upto != stage.upto:
            return None
        if history.key(proposal.chain, proposal.point, proposal.upto) != _key(
            history, self._chain, proposal.point, stage.upto
        ):
            return None
        for part, start in stage.starts.items():
            before = {node: values for node, values in proposal.point.items() if node not in stage.nodes}
            if before == start:
                return part, {node: values for node, values in proposal.point.items() if node in stage.nodes}
        return None

    def _ranked(self, stage: _Stage, trials: Sequence[Trial]) -> list[Point]:
        """Points of the stage that work, best first."""
        goals = stage.search.history.objectives
        good = [t for t in trials if t.feedback is not None and not t.feedback.failed]
        return [t.proposal.point for t in sorted(good, key=lambda t: rank_key(t.feedback, goals))]

    def _pick(self, stage: _Stage, rng: Random) -> Decision:
        answer = stage.search.next(rng)
        if not isinstance(answer, Suggestion):
            return answer
        return Suggestion(self._chain.id, self._join(stage, answer.chain, answer.point), stage.upto)


def _key(history: History, chain: ChainSpace, point: Point, upto: str | None) -> str | None:
    return history.key(chain.id, point, upto) if upto is None or upto in chain.nodes else None
