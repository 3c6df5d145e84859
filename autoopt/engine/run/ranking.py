"""How the trials of a run compare: the few best, the Pareto front, the best, and whether it gains on the source."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

from autoopt.engine.run.loop import CompletedTrial
from autoopt.engine.run.select import certain_gain, feasible_once, source_choice, trial_choice, values_of
from autoopt.engine.work.context import RunContext
from autoopt.engine.work.evaluations import Measured
from autoopt.metrics import get_metric
from autoopt.results import Choice
from autoopt.search.choice import choose_best
from autoopt.search.pareto import Scored, pareto_front
from autoopt.spec.search import Choose


@dataclass(frozen=True)
class Ranking:
    """Of trials that were measured alike. `baseline`: the source model; `choose`: how, of several objectives."""

    ctx: RunContext
    baseline: Measured
    choose: Choose

    def few_best(self, told: Sequence[CompletedTrial], count: int) -> list[CompletedTrial]:
        """The few best feasible trials, best first."""
        scored = self._scored(told)
        first: list[CompletedTrial] = []
        while scored and len(first) < count:
            best = choose_best(list(scored), self.ctx.goal.objectives, self.choose)
            first.append(scored.pop(best))
        return first

    def front(self, told: Sequence[CompletedTrial]) -> list[Choice]:
        """The feasible trials on the Pareto front of these and the source model, where that meets the constraints."""
        scored = self._scored(told)
        others = [self._own] if self.source_meets else []
        found = pareto_front([*scored, *others], self.ctx.goal.front)
        return [trial_choice(self.ctx, scored[s]) for s in found if s in scored]

    def best(self, told: Sequence[CompletedTrial], only: Set[str] = frozenset()) -> Choice | None:
        """The best candidate, of those with keys in `only` where there are any; the source model where none gains for
        certain and the source meets the constraints."""
        objectives, source_meets, own = self.ctx.goal.objectives, self.source_meets, self._own
        scored = self._scored(told)
        candidates = list(scored)
        if only:
            candidates = [s for s in candidates if (c := scored[s].result.candidate) and c.key in only]
        if source_meets and len(objectives) == 1:
            first = objectives[0]
            maximize = first.goal == "maximize"
            candidates = [s for s in candidates if certain_gain(scored[s].result, first.metric, maximize=maximize)]
        if source_meets:
            candidates.append(own)
        if not candidates:
            return None
        best = choose_best(candidates, objectives, self.choose)
        return source_choice(self.ctx, self.baseline) if best is own else trial_choice(self.ctx, scored[best])

    @property
    def _own(self) -> Scored:
        """The source model, which is a candidate too."""
        return Scored({n: e.value for n, e in self.baseline.metrics.items()}, passes=0, chain="", order=-1)

    @property
    def source_meets(self) -> bool:
        """Whether the source model itself has all objectives and meets the constraints."""
        goal, metrics = self.ctx.goal, self.baseline.metrics
        broken: list[float] = []
        for c in goal.constraints:
            value = metrics.get(c.metric)
            if value is not None:
                broken.append(c.violation(value.value, value.value, get_metric(c.metric, goal.custom).direction))
        return all(o.metric in metrics for o in goal.objectives) and all(b <= 0 for b in broken)

    def _scored(self, told: Sequence[CompletedTrial]) -> dict[Scored, CompletedTrial]:
        return {
            Scored(
                values=values_of(t, self.baseline.metrics),
                passes=sum(not n.inserted for n in t.chain.nodes),
                chain=t.chain.id,
                order=t.number,
            ): t
            for t in feasible_once(told, self.ctx.source)
            if all(o.metric in t.result.metrics for o in self.ctx.goal.objectives)
        }
