"""Releases as documents, and back."""

from __future__ import annotations

from autoopt.results import ModelResult, RunResult, SweepEntry
from autoopt.results.release import Release


def test_a_release_is_read_back() -> None:
    result = RunResult("r1", "ok", best=ModelResult("a" * 64, chain="fold"))
    release = Release(
        "production", 3, SweepEntry("cnn", "ok", result=result), "s1", 4, places=("live",), by="ann@forge"
    )
    assert Release.from_json(release.to_json()) == release
    assert release.name == "production/cnn 3"
    assert release.model.chain == "fold"
