"""Rank the trials of a run: the few best, the Pareto front, and the best one if it gains on the source model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Final

from autoopt.engine.run.evidence import Evidence
from autoopt.engine.run.select import distinct_feasible, source_model, trial_model
from autoopt.engine.run.trial import objective_values, paired_metrics
from autoopt.engine.work.context import RunContext
from autoopt.engine.work.evaluations import Measurements
from autoopt.metrics import STEADY_STATE, Estimate, Kind, Objective
from autoopt.problem.problem import Goal
from autoopt.results import ModelResult, Trial, values_of
from autoopt.search.losses import Scored, choose_best, losses_of, pareto_front
from autoopt.spec.search import Choose
from autoopt.tuning import RACE

if TYPE_CHECKING:
    import numpy as np

EQUAL, EQUAL_IN_DOUBT = 0.005, 0.02
"""Relative difference in speed up to which two candidates are equally fast: of the means, and with their error."""
TIE_BREAKERS: Final[tuple[Kind, ...]] = ("task", "custom", "fidelity", "size")
"""Metrics that decide between equally fast candidates, the first kind first."""


@dataclass(frozen=True)
class Ranking:
    """Ranks trials. Their latencies count as all evidence together says, or as measured in the trial without any."""

    ctx: RunContext
    baseline: Measurements
    """The source model."""
    choose: Choose
    """The way in which several objectives decide."""
    evidence: Evidence | None = None
    lossy: bool | None = None
    """Rank only trials of lossy chains (True) or of all others (False); None for all trials."""

    @property
    def by_speed(self) -> bool:
        """True if a latency or throughput decides before anything else."""
        objectives = self._objectives
        return objectives[0].metric in STEADY_STATE and (self.choose == "priority" or len(objectives) == 1)

    @property
    def _objectives(self) -> tuple[Objective, ...]:
        return self.ctx.problem.goal.objectives

    def few_best(self, trials: Sequence[Trial], count: int) -> list[Trial]:
        """The few best feasible trials, best first."""
        scored = self._scored(trials)
        best: list[Trial] = []
        while scored and len(best) < count:
            next_best = choose_best(list(scored), self._objectives, self.choose)
            best.append(scored.pop(next_best))
        return best

    def leader(self, trials: Sequence[Trial]) -> Trial | None:
        """The best feasible trial whether it gains on the source or not; None without any."""
        return next(iter(self.few_best(trials, 1)), None)

    def rivals(self, leader: Trial, trials: Sequence[Trial], worthwhile: float) -> list[Trial]:
        """The feasible trials that may be faster than the leader, the most promising first.

        A trial is a rival if its expected relative gain on the leader is above `worthwhile`.
        """
        gains: list[tuple[float, int, Trial]] = []
        for trial in self._scored(trials).values():
            if trial.number != leader.number and self._has_evidence(trial) and self._has_evidence(leader):
                gain = _expected_gain(self._difference(trial, leader))
                # One that does not promise to beat the source is no rival, as it cannot be the answer.
                if gain > worthwhile and (not self.source_meets or self.expected_gain(trial) > worthwhile):
                    gains.append((-gain, trial.number, trial))
        return [trial for _, _, trial in sorted(gains, key=lambda entry: entry[:2])]

    def promising_rivals(self, leader: Trial, trials: Sequence[Trial], worthwhile: float, rounds: int) -> list[Trial]:
        """The rivals that are worth some more rounds, the most promising first.

        The gain on the leader that these rounds are expected to reveal is above `worthwhile`.
        """
        assert self.evidence is not None, "only called with evidence"
        gains: list[tuple[float, int, Trial]] = []
        for trial in self.rivals(leader, trials, worthwhile):
            change = self.evidence.foreseen_change(trial.model_key, leader.model_key, self._objectives[0], rounds)
            gain = _expected_decrease(float(self._difference(trial, leader).mean()), change)
            if gain > worthwhile:
                gains.append((-gain, trial.number, trial))
        return [trial for _, _, trial in sorted(gains, key=lambda entry: entry[:2])]

    def front(self, trials: Sequence[Trial]) -> list[ModelResult]:
        """The feasible trials on the Pareto front.

        If the source model meets the constraints, it competes too, but is not part of the answer, and only trials that
        are better than it beyond their interval take part. A model with no certain advantage over others says so; it
        names those that stand apart from all, if there are any among them.
        """
        front = self._pareto_front(trials)
        rivals = [self._rivals_on_front(trial, front) for trial in front]
        apart = [trial for trial, others in zip(front, rivals, strict=True) if not others]
        models: list[ModelResult] = []
        for trial, others in zip(front, rivals, strict=True):
            model = self._model(trial)
            named = tuple(other.number for other in filter(apart.__contains__, others))
            named = named or tuple(other.number for other in others)
            if named:
                noun = "trial" if len(named) == 1 else "trials"
                flag = f"no certain advantage over {noun} {', '.join(map(str, named))}"
                model = replace(model, flags=(*model.flags, flag), rivals=named)
            models.append(model)
        return models

    def _pareto_front(self, trials: Sequence[Trial]) -> list[Trial]:
        scored = self._scored(trials)
        if self.source_meets:
            scored = {score: trial for score, trial in scored.items() if self._is_find(trial)}
        competitors = list(scored)
        if self.source_meets:
            competitors.append(self._source_score())
        scores = pareto_front(competitors, self.ctx.problem.goal.front)
        return [scored[score] for score in scores if score in scored]

    def _rivals_on_front(self, trial: Trial, front: Sequence[Trial]) -> list[Trial]:
        """The trials of the front that may be at least as good as this one in everything.

        Of two between which no difference is certain, only the later one has the other as a rival.
        """
        rivals: list[Trial] = []
        is_earlier = True
        for other in front:
            if other.number == trial.number:
                is_earlier = False
            elif not self._has_advantage(trial, other) and (is_earlier or self._has_advantage(other, trial)):
                rivals.append(other)
        return rivals

    def _has_advantage(self, trial: Trial, other: Trial) -> bool:
        """True if a trial is certainly better than another one in a metric of the front."""
        return any(self._is_better(trial, other, objective) for objective in self.ctx.problem.goal.front)

    def _is_better(self, trial: Trial, other: Trial, objective: Objective) -> bool:
        """True if a trial is certainly better than another one in one metric."""
        name, evidence = objective.metric, self.evidence
        keys = [trial.model_key, other.model_key] if name in STEADY_STATE else []
        if evidence is not None and keys and all(evidence.has(key, name) for key in keys):
            difference = evidence.losses(trial.model_key, objective) - evidence.losses(other.model_key, objective)
            return float((difference < 0).mean()) >= RACE.certain
        mine = paired_metrics(trial, self.baseline.metrics).get(name)
        others = paired_metrics(other, self.baseline.metrics).get(name)
        if mine is None or others is None:
            return False
        return mine.is_better(others, objective.goal)

    def best(self, trials: Sequence[Trial]) -> ModelResult | None:
        """The best model; the source model if it meets the constraints and no trial certainly gains on it."""
        scored = self._scored(trials)
        candidates = list(scored)
        source = self._source_score()
        if self.source_meets:
            if len(self._objectives) == 1:
                candidates = [score for score in candidates if self.gains(scored[score])]
            candidates.append(source)
        if not candidates:
            return None
        best = choose_best(candidates, self._objectives, self.choose)
        if best is source:
            return source_model(self.ctx, self.baseline)
        rest = [scored[score] for score in candidates if score is not source]
        return self._model(self._best_of_equals(scored[best], rest))

    def _model(self, trial: Trial) -> ModelResult:
        """The model of a trial, whose times are those beside the source's one value."""
        metrics = paired_metrics(trial, self.baseline.metrics)
        return trial_model(self.ctx, replace(trial, metrics=metrics))

    @property
    def source_meets(self) -> bool:
        """True if the source model has all objectives and meets the constraints."""
        if not self.baseline.outcome.good:
            return False  # it does not run
        return source_meets(self.ctx.problem.goal, self.baseline.metrics, self.baseline.source)

    def gains(self, trial: Trial) -> bool:
        """True if the trial is certainly better than the source in the first objective, or has no ratio to judge by."""
        objective = self._objectives[0]
        if (
            self.evidence is not None
            and objective.metric in STEADY_STATE
            and self.evidence.equals_source(trial.model_key)
        ):
            return False
        if self.evidence is not None and self._has_evidence(trial):
            return self.evidence.gains(trial.model_key, objective)
        ratio = trial.ratios.get(objective.metric)
        return ratio is None or ratio.is_gain(objective.goal)

    def _is_find(self, trial: Trial) -> bool:
        """True if the trial is better than the source beyond its interval in a metric of the front."""
        if self.gains(trial):
            return True
        for objective in self.ctx.problem.goal.front:
            ratio = trial.ratios.get(objective.metric)
            if ratio is not None and ratio.is_gain(objective.goal):
                return True
        return False

    def expected_gain(self, trial: Trial) -> float:
        """The expected relative gain in speed on the source, if the better one of the two is used; 1 if unknown."""
        if self.evidence is not None and self.evidence.equals_source(trial.model_key):
            return 0.0
        if self.evidence is None or not self._has_evidence(trial):
            return 1.0
        return _expected_gain(self.evidence.losses(trial.model_key, self._objectives[0]))

    def _best_of_equals(self, best: Trial, trials: Sequence[Trial]) -> Trial:
        """Of the trials that are equally fast within noise, the one with the better quality, then the smaller one.

        Further objectives come before both, fewer passes after them.
        """
        if not self.by_speed or not self._has_evidence(best):
            return best
        equals: list[Trial] = []
        for trial in filter(self._has_evidence, trials):
            difference = self._difference(trial, best)
            if float(difference.mean()) <= min(EQUAL_IN_DOUBT, EQUAL + float(difference.std())):
                equals.append(trial)
        return min(equals, key=self._tie_break)

    def _tie_break(self, trial: Trial) -> tuple[tuple[float, ...], int, str, int]:
        """Sort key of equally fast trials; a metric that was not measured counts as worst."""
        metrics = [metric for metric in self.ctx.problem.goal.metrics if metric.kind in TIE_BREAKERS]
        metrics.sort(key=lambda metric: TIE_BREAKERS.index(metric.kind))
        objectives = [*self._objectives[1:], *(Objective(metric.name, metric.direction) for metric in metrics)]
        values = values_of(trial.metrics)
        losses: list[float] = []
        for objective in objectives:
            loss = losses_of(values, [objective])
            losses.append(float("inf") if loss is None else loss[0])
        return tuple(losses), trial.pass_count, trial.chain_id, trial.number

    def _difference(self, trial: Trial, other: Trial) -> np.ndarray:
        """Draws of how much slower a trial is than another one, as a logarithm."""
        assert self.evidence is not None, "only called with evidence"
        objective = self._objectives[0]
        difference: np.ndarray = self.evidence.losses(trial.model_key, objective) - self.evidence.losses(
            other.model_key, objective
        )
        return difference

    def _has_evidence(self, trial: Trial) -> bool:
        return self.evidence is not None and self.evidence.has(trial.model_key, self._objectives[0].metric)

    def _source_score(self) -> Scored:
        return Scored(values_of(self.baseline.metrics), passes=0, chain="", order=-1)

    def _scored(self, trials: Sequence[Trial]) -> dict[Scored, Trial]:
        """The distinct feasible trials with a number for every objective that did not fail when measured again."""
        objectives = self._objectives
        failed = self.evidence.rounds.failed if self.evidence is not None else ()
        scored = {}
        for trial in distinct_feasible(trials, self.ctx.problem.source):
            if self.lossy is not None and self.ctx.is_lossy(trial) != self.lossy:
                continue
            values = self._values(trial)
            if trial.model_key not in failed and losses_of(values, objectives) is not None:
                scored[Scored(values, trial.pass_count, trial.chain_id, trial.number)] = trial
        return scored

    def _values(self, trial: Trial) -> dict[str, float]:
        """Metrics for comparing trials; latencies from the ratio to the source, cautiously where there is evidence."""
        values = objective_values(trial, self.baseline.metrics)
        if self.evidence is None:
            return values
        for name in STEADY_STATE:
            if name in values and name in self.baseline.metrics and self.evidence.has(trial.model_key, name):
                objective = Objective(name, self.ctx.problem.goal.metric(name).direction)
                ratio = self.evidence.cautious_ratio(trial.model_key, objective)
                values[name] = ratio * self.baseline.metrics[name].value
        return values


def _expected_gain(slower: np.ndarray) -> float:
    """The mean relative gain, where slower counts as none, from draws of how much slower a model is, as a logarithm."""
    import numpy as np

    gains = -np.expm1(np.minimum(slower, 0.0))
    return float(gains.mean())


def _expected_decrease(mean: float, deviation: float) -> float:
    """The expected amount by which a normally distributed value is below 0, where values above count as 0."""
    if not deviation:
        return max(0.0, -mean)
    normal = NormalDist()
    place = -mean / deviation
    return deviation * normal.pdf(place) - mean * normal.cdf(place)


def source_meets(
    goal: Goal, metrics: Mapping[str, Estimate], on_default_provider: Mapping[str, Estimate] | None = None
) -> bool:
    """True if a source model with these metrics has all objectives and meets the constraints.

    Drops are those from its metrics on the default provider.
    """
    if losses_of(values_of(metrics), goal.objectives) is None:
        return False
    for constraint in goal.constraints:
        estimate = metrics.get(constraint.metric)
        direction = goal.metric(constraint.metric).direction
        reference = (on_default_provider or {}).get(constraint.metric, estimate)
        if estimate and reference and constraint.violation(estimate.value, reference.value, direction) > 0:
            return False
    return True
