"""Model sets as artifacts: a folder for each part, and the description of the set."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from autoopt.model.candidate import Candidate
from autoopt.model.model_set import ModelSet, Part
from autoopt.problem.resources import Resources
from autoopt.results import ModelResult
from autoopt.store.contracts import ArtifactStore


def store_set(resources: Resources, description: ModelSet, candidates: Mapping[str, Candidate]) -> Candidate:
    """Store a set of these candidates, by part."""
    artifacts = resources.store.artifacts
    text = json.dumps(with_candidates(description, candidates, artifacts).to_json(), indent=2)
    models = {name: candidates[name].artifact for name in description.parts}
    return Candidate(artifacts.put_set(f"{text}\n".encode(), models))


def with_candidates(description: ModelSet, candidates: Mapping[str, Candidate], artifacts: ArtifactStore) -> ModelSet:
    """The description of a set of these candidates, each in the folder of its part."""
    parts = {}
    for name in description.parts:
        suffix = artifacts.readable(candidates[name].artifact).suffix
        parts[name] = Part(f"{name}/model{suffix}", dict(candidates[name].session_options))
    return replace(description, parts=parts)


def chains_text(models: Mapping[str, ModelResult]) -> str:
    """The chains of a set's models: `encoder: fuse -> dynamic; decoder: source`."""
    return "; ".join(f"{name}: {model.short_chain}" for name, model in models.items())
