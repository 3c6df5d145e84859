"""One part of a model set: a run of its own on the inputs that reach it in the set."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from autoopt.engine.run.parts import RunPart
from autoopt.engine.run.select import UNVERIFIED
from autoopt.metrics import Objective
from autoopt.model.candidate import Candidate
from autoopt.model.model_set import ModelSet, Part
from autoopt.problem.resources import Resources
from autoopt.results import ModelResult
from autoopt.store import Store
from autoopt.tuning import RACE


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
        return [best, *rest][: RACE.fallbacks]

    def _gain(self, model: ModelResult) -> float:
        """The relative gain in the objective; negative for a loss, 0 if nothing was compared."""
        ratio = model.ratios.get(self.objective.metric)
        if ratio is None:
            return 0.0
        return ratio.value - 1 if self.objective.goal == "maximize" else 1 - ratio.value


def store_set(resources: Resources, description: ModelSet, candidates: Mapping[str, Candidate]) -> Candidate:
    """Store a set of these candidates, by part."""
    artifacts = resources.store.artifacts
    text = json.dumps(with_candidates(description, candidates, resources.store).to_json(), indent=2)
    models = {name: candidates[name].artifact for name in description.parts}
    return Candidate(artifacts.put_set(f"{text}\n".encode(), models))


def with_candidates(description: ModelSet, candidates: Mapping[str, Candidate], store: Store) -> ModelSet:
    """The description of a set of these candidates, each in the folder of its part."""
    parts = {}
    for name in description.parts:
        suffix = store.artifacts.path(candidates[name].artifact).suffix
        parts[name] = Part(f"{name}/model{suffix}", dict(candidates[name].session_options))
    return replace(description, parts=parts)


def chains_text(models: Mapping[str, ModelResult]) -> str:
    """The chains of a set's models: `encoder: fuse -> dynamic; decoder: source`."""
    return "; ".join(f"{name}: {model.short_chain}" for name, model in models.items())
