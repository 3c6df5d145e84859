"""One part of a model set: a run of its own on the inputs that reach it in the set."""

from __future__ import annotations

from dataclasses import dataclass

from autoopt.engine.inputs.request import RunRequest
from autoopt.engine.inputs.resolve import ResolvedInputs
from autoopt.engine.run.session import Session
from autoopt.metrics import Objective
from autoopt.model.candidate import Candidate
from autoopt.results import ModelResult, RunResult

FALLBACKS = 4
"""Most models of a part that are tried in the set."""


@dataclass
class SetPart:
    """One part of a run over a model set."""

    name: str
    request: RunRequest
    inputs: ResolvedInputs
    share: float
    """Share of the set's time that it takes."""
    session: Session | None = None
    result: RunResult | None = None

    @property
    def source(self) -> Candidate:
        return self.inputs.problem.source

    @property
    def objective(self) -> Objective:
        return self.inputs.problem.goal.objectives[0]

    def models(self) -> list[ModelResult]:
        """The models to try in the set: the best one, then those of the front that gain, best first."""
        assert self.result is not None, "the search of this part has not ended"
        best = self.result.best
        if best is None or best.is_source:
            return []
        rest = [model for model in self.result.pareto if model.candidate.key != best.candidate.key]
        rest = [model for model in rest if self._gain(model) > 0]
        rest.sort(key=self._gain, reverse=True)
        return [best, *rest][:FALLBACKS]

    def _gain(self, model: ModelResult) -> float:
        """The relative gain in the objective; negative for a loss, 0 if nothing was compared."""
        ratio = model.ratios.get(self.objective.metric)
        if ratio is None:
            return 0.0
        return ratio.value - 1 if self.objective.goal == "maximize" else 1 - ratio.value
