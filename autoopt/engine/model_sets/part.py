"""One part of a model set: a run of its own on the inputs that reach it in the set."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from autoopt.engine.run.parts import RunPart
from autoopt.engine.run.select import UNVERIFIED
from autoopt.metrics import Objective
from autoopt.model.candidate import Candidate
from autoopt.results import ModelResult

FALLBACKS: Final = 4
"""Most models of a part that are tried in the set."""


@dataclass
class SetPart(RunPart):
    """One part of a run over a model set."""

    share: float = field(kw_only=True)
    """Share of the set's time that it takes."""

    @property
    def source(self) -> Candidate:
        return self.problem.source

    @property
    def objective(self) -> Objective:
        return self.problem.goal.objectives[0]

    def models(self) -> list[ModelResult]:
        """The models to try in the set: the best one, then the gaining models of the front, best first."""
        best = self.searched.better_model
        if best is None:
            return []
        rest = [model for model in self.searched.front if model.candidate.key != best.candidate.key]
        rest = [model for model in rest if self._gain(model) > 0 and UNVERIFIED not in model.flags]
        rest.sort(key=self._gain, reverse=True)
        return [best, *rest][:FALLBACKS]

    def _gain(self, model: ModelResult) -> float:
        """The relative gain in the objective; negative for a loss, 0 if nothing was compared."""
        ratio = model.ratios.get(self.objective.metric)
        if ratio is None:
            return 0.0
        return ratio.value - 1 if self.objective.goal == "maximize" else 1 - ratio.value
