"""Model sets as artifacts: a folder for each part, and the description of the set."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from autoopt.engine.work.resources import Resources
from autoopt.model.candidate import Candidate
from autoopt.model.model_set import MODEL_SET, ModelSet, Part
from autoopt.results import ModelResult
from autoopt.store.contracts import ArtifactStore


def store_set(resources: Resources, description: ModelSet, candidates: Mapping[str, Candidate]) -> Candidate:
    """Store a set of these candidates, by part."""
    artifacts = resources.store.artifacts
    folder = Path(tempfile.mkdtemp(dir=resources.scratch))
    try:
        for name in description.parts:
            (folder / name).mkdir()
            artifacts.write_files(candidates[name].artifact, folder / name)
        text = json.dumps(with_candidates(description, candidates, artifacts).to_json(), indent=2)
        (folder / MODEL_SET).write_text(text + "\n", encoding="utf-8")
        return Candidate(artifacts.put(folder, consume=True))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


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
