"""Rank the trials of a run: the few best, the Pareto front, and the best one if it gains on the source model."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

from autoopt.engine.run.select import (
    distinct_feasible,
    is_certain_gain,
    pass_count,
    source_model,
    trial_model,
)
from autoopt.engine.run.trial import CompletedTrial, objective_values
from autoopt.engine.work.context import RunContext
from autoopt.engine.work.evaluations import Measurements
from autoopt.metrics import get_metric
from autoopt.results import ModelResult, values_of
from autoopt.search.choice import choose_best
from autoopt.search.pareto import Scored, pareto_front
from autoopt.spec.search import Choose


@dataclass(frozen=True)
class Ranking:
    """Ranks trials that were measured alike."""

    ctx: RunContext
    baseline: Measurements
    """The source model."""
    choose: Choose
    """The way in which several objectives decide."""

    def few_best(self, trials: Sequence[CompletedTrial], count: int) -> list[CompletedTrial]:
        """The few best feasible trials, best first."""
        scored = self._scored(trials)
        best: list[CompletedTrial] = []
        while scored and len(best) < count:
            next_best = choose_best(list(scored), self.ctx.problem.goal.objectives, self.choose)
            best.append(scored.pop(next_best))
        return best

    def front(self, trials: Sequence[CompletedTrial]) -> list[ModelResult]:
        """The feasible trials on the Pareto front.

        The source model competes too if it meets the constraints, but is not part of the answer.
        """
        scored = self._scored(trials)
        competitors = list(scored)
        if self.source_meets:
            competitors.append(self._source_score())
        front = pareto_front(competitors, self.ctx.problem.goal.front)
        return [trial_model(self.ctx, scored[score]) for score in front if score in scored]

    def best(self, trials: Sequence[CompletedTrial], only: Set[str] = frozenset()) -> ModelResult | None:
        """The best model; the source model if it meets the constraints and no trial certainly gains on it.

        Args:
            trials: The trials to rank.
            only: Keys of the candidates to choose from; empty for all.
        """
        objectives = self.ctx.problem.goal.objectives
        scored = self._scored(trials)
        if only:
            scored = {score: trial for score, trial in scored.items() if _key(trial) in only}
        candidates = list(scored)
        source = self._source_score()
        if self.source_meets:
            if len(objectives) == 1:
                candidates = [score for score in candidates if self._gains(scored[score])]
            candidates.append(source)
        if not candidates:
            return None
        best = choose_best(candidates, objectives, self.choose)
        if best is source:
            return source_model(self.ctx, self.baseline)
        return trial_model(self.ctx, scored[best])

    @property
    def source_meets(self) -> bool:
        """True if the source model has all objectives and meets the constraints."""
        goal, metrics = self.ctx.problem.goal, self.baseline.metrics
        if any(objective.metric not in metrics for objective in goal.objectives):
            return False
        for constraint in goal.constraints:
            estimate = metrics.get(constraint.metric)
            direction = get_metric(constraint.metric, goal.custom).direction
            if estimate is not None and constraint.violation(estimate.value, estimate.value, direction) > 0:
                return False
        return True

    def _gains(self, trial: CompletedTrial) -> bool:
        objective = self.ctx.problem.goal.objectives[0]
        return is_certain_gain(trial.result, objective.metric, maximize=objective.goal == "maximize")

    def _source_score(self) -> Scored:
        return Scored(values_of(self.baseline.metrics), passes=0, chain="", order=-1)

    def _scored(self, trials: Sequence[CompletedTrial]) -> dict[Scored, CompletedTrial]:
        """The distinct feasible trials that have a value of every objective."""
        objectives = self.ctx.problem.goal.objectives
        scored = {}
        for trial in distinct_feasible(trials, self.ctx.problem.source):
            if all(objective.metric in trial.result.metrics for objective in objectives):
                values = objective_values(trial.result, self.baseline.metrics)
                scored[Scored(values, pass_count(trial), trial.chain.id, trial.number)] = trial
        return scored


def _key(trial: CompletedTrial) -> str:
    return "" if trial.result.candidate is None else trial.result.candidate.key
