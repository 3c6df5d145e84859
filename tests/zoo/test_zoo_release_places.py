"""Places where releases are published."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoopt.engine.tools import exports
from autoopt.results import ModelResult, RunResult, SweepEntry, source_result
from autoopt.results.sweep import Release


def release(number: int = 1, name: str = "cnn", artifact: str = "a") -> Release:
    best = ModelResult(artifact=artifact * 64, chain="fold")
    result = RunResult("r1", "finished", best=best, baseline=source_result("b" * 64))
    return Release("production", number, SweepEntry(name, "ok", result=result), by="ann@forge")


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "model.onnx").write_bytes(b"model")
    return folder


def test_a_registered_model_has_a_version_for_each_release(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    for number in (1, 2, 1):
        exports.register(package, release(number), "cnn")()
    client = mlflow.MlflowClient()
    assert client.get_model_version_by_alias("cnn", "released").tags["autoopt.release"] == "production/cnn 1"
    assert len(client.search_model_versions("name = 'cnn'")) == 2
