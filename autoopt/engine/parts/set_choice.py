"""Choose the models of a set by what the whole set does with them.

The heaviest part chooses first: the best of its models with which the set, as chosen so far, meets its limits on
quality. Then the whole set is measured beside the source set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from autoopt.engine.parts.run_of_parts import Part
from autoopt.engine.parts.set_inputs import store_set
from autoopt.engine.run.measurement_summary import stored_summary
from autoopt.engine.run.race import measure_exactly
from autoopt.engine.run.select import UNVERIFIED, source_model
from autoopt.engine.work.context import RunContext
from autoopt.engine.work.evaluations import Measurements, evaluate
from autoopt.engine.work.meter_runs import EvaluationOptions
from autoopt.metrics import Estimate
from autoopt.model.candidate import Candidate
from autoopt.model.model_set import ModelSet
from autoopt.outcome import Outcome
from autoopt.results import ModelResult, values_of
from autoopt.tuning import RACE

TIME_UP: Final = "the time was up before the models were measured together"


@dataclass
class SetChoice:
    """The choice of the models of one set."""

    ctx: RunContext
    description: ModelSet
    parts: Sequence[Part]
    """All of them searched."""
    baseline: Measurements
    """The source set."""
    chosen: dict[str, ModelResult] = field(default_factory=dict)
    """By part; the source where a part is missing."""
    notes: list[str] = field(default_factory=list)
    undecided: str = ""
    """The reason why the models were not judged together; empty if they were."""

    def choose(self) -> ModelResult | None:
        """Choose a model for each part and measure the set; return it, or the source set if it is not certainly worse.

        None if neither meets the constraints.
        """
        for part in sorted(self.parts, key=lambda part: part.share, reverse=True):
            self._choose_for(part)
        if not self.chosen:
            return self._source()
        candidate = self._stored(self.chosen)
        measurements = measure_exactly(self.ctx, candidate, self.baseline.metrics)
        objective = self.ctx.problem.goal.objectives[0]
        ratio = measurements.ratios.get(objective.metric, Estimate.exact(1.0))
        if measurements.outcome is Outcome.TIMEOUT:
            self.undecided = TIME_UP
        elif not measurements.outcome.good or measurements.violation > 0:
            reason = measurements.message or measurements.worst
            self.notes.append(f"together ({self._chains()}): {reason}; keeping your models")
        elif not ratio.is_gain(objective.goal):
            self.notes.append(
                f"better by themselves, but not measurably together ({self._chains()}); keeping your models"
            )
        else:
            summary, caveats = stored_summary(self.ctx, measurements.keys)
            return ModelResult(
                artifact=candidate.artifact,
                path=self.ctx.model_path(candidate),
                chain=self._chains(),
                metrics=values_of(measurements.metrics),
                intervals=dict(measurements.metrics),
                ratios=dict(measurements.ratios),
                flags=(*measurements.reasons, *caveats),
                unsure=measurements.unsure,
                measured=summary,
            )
        self.chosen = {}
        return self._source()

    def _choose_for(self, part: Part) -> None:
        """Take the first of a part's models with which the set keeps its quality."""
        goal = self.ctx.problem.goal
        quality = tuple(metric.name for metric in goal.metrics if metric.kind in ("fidelity", "task", "custom"))
        for model in _to_try(part):
            candidate = self._stored({**self.chosen, part.name: model})
            measurements = evaluate(self.ctx, candidate, EvaluationOptions(metrics=quality))
            if measurements.outcome.good and measurements.violation <= 0:
                self.chosen[part.name] = model
                return
            if measurements.outcome is Outcome.TIMEOUT:
                self.undecided = TIME_UP
                return
            reason = measurements.message or measurements.worst
            self.notes.append(f"{part.name}: {model.chain} is not for the set: {reason}")

    def _stored(self, models: Mapping[str, ModelResult]) -> Candidate:
        """The set with these models, and the sources of the other parts."""
        candidates = {part.name: part.problem.source for part in self.parts}
        candidates |= {name: model.candidate for name, model in models.items()}
        return store_set(self.ctx.store, self.description, candidates)

    def _chains(self) -> str:
        """The chains of the chosen models."""
        return chains_text({part.name: self.chosen.get(part.name, part.searched.baseline.model) for part in self.parts})

    def _source(self) -> ModelResult | None:
        if self.baseline.outcome.good and self.baseline.violation <= 0:
            return source_model(self.ctx, self.baseline)
        return None


def _to_try(part: Part) -> list[ModelResult]:
    """The models of a part to try in the set: the best one, then the gaining models of the front, best first."""
    best, objective = part.searched.better_model, part.problem.goal.objectives[0]
    if best is None:
        return []
    rest: list[tuple[float, ModelResult]] = []
    for model in part.searched.front:
        ratio = model.ratios.get(objective.metric, Estimate.exact(1.0)).value
        gain = ratio - 1 if objective.goal == "maximize" else 1 - ratio
        if gain > 0 and model.candidate.key != best.candidate.key and UNVERIFIED not in model.flags:
            rest.append((gain, model))
    rest.sort(key=lambda pair: pair[0], reverse=True)
    return [best, *(model for _, model in rest)][: RACE.fallbacks]


def chains_text(models: Mapping[str, ModelResult]) -> str:
    """The chains of a set's models: `encoder: fuse -> dynamic; decoder: source`."""
    return "; ".join(f"{name}: {model.short_chain}" for name, model in models.items())
