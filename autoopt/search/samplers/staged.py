"""One chain searched stage by stage: each stage starts from the best partial chains of the stage before."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TypeAlias

from autoopt.metrics import Objective
from autoopt.search.history import History
from autoopt.search.losses import rank_key
from autoopt.search.samplers.base import WAIT, Decision, Sampler, Stop, Suggestion
from autoopt.search.samplers.chain_parts import SubspaceSampler, join_points, restrict_chain, restrict_point
from autoopt.search.trial import ChainSpace, Proposal
from autoopt.space import Point

CreateOverParts: TypeAlias = Callable[[Sequence[ChainSpace]], Sampler]
"""Creates the sampler of one stage, over its parts."""


@dataclass
class _Stage:
    """A stage under way."""

    nodes: tuple[str, ...]
    upto: str | None
    """Last node of the stage's partial chains; None in the last stage, whose chains are whole."""
    starts: dict[str, Point]
    """Name of a part -> the partial chain from which it starts."""
    sampler: SubspaceSampler
    places: dict[str, tuple[str, Point]] = field(default_factory=dict)
    """Key of a trial -> its part, and its point in the part, in the order met."""


class StagedSampler:
    """Suggests partial chains up to the end of a stage, then continues from the `keep` best of them.

    A stage gets an equal share of the chain's `budget`, and more only as long as nothing in it worked. Trials of other
    chains with the same beginning count too. A stage without a choice is not measured.
    """

    def __init__(
        self,
        chain: ChainSpace,
        create: Sequence[tuple[tuple[str, ...], CreateOverParts]],
        *,
        keep: int,
        budget: int,
        objectives: Sequence[Objective],
        node_objectives: Mapping[str, Sequence[Objective]],
    ) -> None:
        """Prepare the search.

        Args:
            chain: the chain to search.
            create: of each stage its nodes, and the function that creates its sampler.
            keep: number of partial chains from which the next stage starts.
            budget: trials of all stages together.
            objectives: those of whole chains.
            node_objectives: node id -> objectives of partial chains that end there, where they differ.
        """
        self._chain = chain
        self._create = tuple(create)
        self._keep = keep
        self._budget = budget
        self._objectives = objectives
        self._node_objectives = node_objectives
        self._stages: list[_Stage] = []

    def next(self, history: History, rng: Random) -> Decision:
        """Suggest a point of the first stage that is not finished."""
        starts: list[Point] = [{}]
        trial_count = 0
        for index in range(len(self._create)):
            stage = self._stage(index, starts)
            # With so few partial chains there is nothing to choose: the next stage starts from all of them.
            if stage.upto is not None and stage.sampler.count <= self._keep:
                starts = self._all_points(stage)
                continue
            trials = self._follow(stage, history)
            working = [trial for trial in trials if trial.feedback is not None and not trial.feedback.failed]
            # The stages that remain share what is left of the budget equally.
            share = max(1, math.ceil((self._budget - trial_count) / (len(self._create) - index)))
            decision = self._next_in_stage(stage, trials, bool(working), share, rng)
            if decision is not None:
                return decision
            objectives = stage.sampler.history.objectives
            working.sort(key=lambda trial: rank_key(trial.feedback, objectives))
            starts = [trial.point for trial in working[: self._keep]]
            trial_count += len(trials)
        return Stop("all stages done")

    def _next_in_stage(
        self, stage: _Stage, trials: list[Proposal], worked: bool, share: int, rng: Random
    ) -> Decision | None:
        """Decide what to try in this stage; None once it is finished."""
        running = any(trial.feedback is None for trial in trials)
        needs_more = len(trials) < share or stage.upto is None or not (worked or running)
        if needs_more and not stage.sampler.exhausted:
            decision = stage.sampler.next(rng)
            if isinstance(decision, Suggestion):
                return Suggestion(self._chain.id, self._join(stage, decision.chain, decision.point), stage.upto)
            return decision
        if stage.upto is None or (worked and not running):
            return None
        return WAIT if running else Stop("no partial chain of a stage works")

    def _all_points(self, stage: _Stage) -> list[Point]:
        """List all partial chains of a stage."""
        points = []
        for name, part in stage.sampler.history.by_id.items():
            points += [self._join(stage, name, point) for point in part.space.iterate()]
        return points

    def _stage(self, index: int, starts: list[Point]) -> _Stage:
        if index == len(self._stages):
            nodes, create = self._create[index]
            start_of = {str(number): point for number, point in enumerate(starts)}
            parts = [restrict_chain(self._chain, nodes, point, name) for name, point in start_of.items()]
            upto, objectives = None, self._objectives
            if index < len(self._create) - 1:
                upto = nodes[-1]
                objectives = self._node_objectives.get(upto, objectives)
            sampler = SubspaceSampler(parts, objectives, create(parts))
            self._stages.append(_Stage(nodes, upto, start_of, sampler))
        return self._stages[index]

    def _join(self, stage: _Stage, part: str, point: Point) -> Point:
        return join_points(self._chain, stage.starts[part], point)

    def _follow(self, stage: _Stage, history: History) -> list[Proposal]:
        """Collect the stage's trials, including those of chains with the same beginning, in the order asked."""
        trials: dict[str, Proposal] = {}
        for trial in history.trials:
            place = self._place(stage, trial, history)
            if place is not None:
                key = history.key(self._chain.id, self._join(stage, *place), stage.upto)
                trials.setdefault(key, trial)
                stage.places.setdefault(key, place)
        stage.sampler.follow([(*stage.places[key], trial.feedback) for key, trial in trials.items()])
        return list(trials.values())

    def _place(self, stage: _Stage, trial: Proposal, history: History) -> tuple[str, Point] | None:
        """Locate a trial in this stage, as part and point; None if it is other work."""
        if trial.upto != stage.upto:
            return None
        key = history.key(trial.chain, trial.point, trial.upto)
        if key != history.key(self._chain.id, trial.point, stage.upto):
            return None
        before = {node: values for node, values in trial.point.items() if node not in stage.nodes}
        for part, start in stage.starts.items():
            if before == start:
                return part, restrict_point(trial.point, stage.nodes)
        return None
