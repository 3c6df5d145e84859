"""run.py of the package of several models; `tests/engine/test_model_sets_run.py` runs it on a real export."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import builders
import numpy as np
import pytest

from autoopt.model import run_set
from autoopt.model.model_set import MODEL_SET, ModelSet, Part, Pipeline
from autoopt.model.run_package import sha256
from autoopt.model.session import session_document

X = np.random.default_rng(0).normal(size=(2, 8)).astype(np.float32)
RATIO = {"value": 0.01, "low": 0.009, "high": 0.011}
"""A gain that no machine shows, because the models are the same."""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of two models, the second of which takes what the first gives, and their sources beside it."""
    folder = tmp_path / "out"
    parts = {}
    for seed, (name, classes) in enumerate({"first": 8, "second": 4}.items()):
        made = builders.mlp(classes=classes, seed=seed)
        model = builders.write(made, folder / name)
        source = builders.write(made, tmp_path / "sources" / name)
        write(model.parent / "session.json", session_document({}))
        files = [{"path": str(source), "sha256": sha256(source)}]
        write(model.parent / "recipe.json", {"source_files": files, "source_session": session_document({})})
        parts[name] = Part(f"{name}/model.onnx")
    made_set = ModelSet(parts, {"first.x": "x", "second.x": "first.y"})
    write(folder / MODEL_SET, made_set.to_json())
    write(folder / "result.json", {"chain": "first: fold; second: fold", "ratios": {}})
    np.savez(folder / "inputs.npz", x=X)
    monkeypatch.setattr(run_set, "FOLDER", folder)
    return folder


def write(file: Path, document: object) -> None:
    file.write_text(json.dumps(document))


def run(folder: Path, *arguments: str) -> int:
    return run_set.main(["--inputs", str(folder / "inputs.npz"), "--seconds", "0.01", *arguments])


def test_the_models_run_together(package: Path) -> None:
    session = run_set.load()
    assert [value.name for value in session.get_inputs()] == ["x"]
    (scores,) = session.run(None, {"x": X})
    assert scores.shape == (2, 4)


def test_inputs_outputs_and_the_comparison_are_printed(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(package) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [
        "models   first: fold; second: fold",
        "input    x: float32 [2, 8]",
        "output   second.y: float32 [2, 4]",
    ]
    assert "these models" in lines[-2]
    assert lines[-1].endswith("no latency was recorded.")


def test_a_gain_that_does_not_show_is_exit_code_1(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(package / "result.json", {"chain": "c", "ratios": {"latency_p50": RATIO}})
    assert run(package) == 1
    assert "autoopt measured 100.00x faster" in capsys.readouterr().out


@pytest.mark.parametrize("change", ["moved", "changed"])
def test_without_the_sources_the_models_are_timed_alone(
    package: Path, capsys: pytest.CaptureFixture[str], change: str
) -> None:
    source = package.parent / "sources" / "second" / "model.onnx"
    if change == "moved":
        source.unlink()
    else:
        source.write_bytes(b"another model")
    assert run(package) == 0
    assert capsys.readouterr().out.endswith(
        "per inference. The source of second is not on this machine, so there is nothing to compare with.\n"
    )


def test_sources_open_with_the_sessions_that_they_were_measured_with(package: Path) -> None:
    document: dict[str, Any] = json.loads((package / "second" / "recipe.json").read_text())
    document["source_session"] = session_document({"graph_optimization_level": "basic"})
    write(package / "second" / "recipe.json", document)
    description = ModelSet.read(package / MODEL_SET)
    sources, reason = run_set.find_sources(description)
    assert reason == ""
    (scores,) = run_set.source_session(description, sources).run(None, {"x": X})
    np.testing.assert_allclose(scores, run_set.load().run(None, {"x": X})[0], rtol=1e-5)


def test_a_pipeline_is_the_function_beside_the_models(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (package / "pipeline.py").write_text(
        "def both(models, inputs):\n    return {'scores': models['second']({'x': models['first'](inputs)['y']})['y']}\n"
    )
    monkeypatch.syspath_prepend(package)
    description = ModelSet.read(package / MODEL_SET)
    by_function = replace(description, pipeline=Pipeline("both", {"x": (None, 8)}, {"scores": (1, 4)}))
    session = run_set.open_set(by_function, run_set.open_part)
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], run_set.load().run(None, {"x": X})[0])
