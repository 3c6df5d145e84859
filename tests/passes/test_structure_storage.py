"""External data and ORT format."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from bench import outputs, saved, step, steps
from micro_models import MODELS, made, normal

from autoopt.model import io
from autoopt.model.session import make_session
from autoopt.passes.base import Refused
from autoopt.passes.structure.storage import OrtFormat
from autoopt.passes.verification.synthetic_feeds import synthetic_feeds


def test_large_weights_move_beside_the_graph(tmp_path: Path) -> None:
    model = made("g (float[2, 64] x) => (float[2, 64] y) { y = MatMul (x, w) }", w=normal(64, 64))
    before = model.SerializeToString()
    result = step(tmp_path, model, "external_data")
    assert result["outcome"] == "ok", result["message"]
    assert sorted(path.name for path in Path(result["path"]).iterdir()) == ["model.onnx", "model.onnx.data"]
    assert Path(result["path"], "model.onnx").stat().st_size < 1000
    assert saved(result).SerializeToString() == before
    assert io.load(tmp_path / "source" / "model.onnx").SerializeToString() == before


def test_small_weights_stay_in_the_graph(tmp_path: Path) -> None:
    assert step(tmp_path, MODELS["relu_only"](), "external_data")["outcome"] == "unchanged"
    assert step(tmp_path, MODELS["mlp"](), "external_data", size_threshold=1_000_000)["outcome"] == "unchanged"


@pytest.mark.parametrize("level", ["disable", "basic", "extended", "all"])
def test_ort_format_runs_and_must_be_last(tmp_path: Path, level: str) -> None:
    model = MODELS["small_cnn"]()
    results = steps(tmp_path, model, [("ort_format", {"level": level}), ("identity_elimination", {})])
    assert [result["outcome"] for result in results] == ["ok", "refused"]
    feeds = next(synthetic_feeds(model))
    found = make_session(Path(results[0]["path"]) / "model.ort").run(None, feeds)[0]
    np.testing.assert_allclose(found, outputs(model, tmp_path, feeds)[0], rtol=1e-4, atol=1e-5)


def test_saving_with_external_data_leaves_the_source_unchanged(tmp_path: Path) -> None:
    model = MODELS["mlp"]()
    before = model.SerializeToString(deterministic=True)
    io.save(model, tmp_path, external=True)
    assert model.SerializeToString(deterministic=True) == before


def test_a_model_that_the_ort_format_cannot_hold_is_refused_before_it_is_loaded(tmp_path: Path) -> None:
    model = made("g (float[2, 64] x) => (float[2, 64] y) { y = MatMul (x, w) }", w=normal(64, 64))
    file = io.save(model, tmp_path, external=True)
    (weights,) = io.external_locations(io.parse(file))
    os.truncate(tmp_path / weights, 9 << 28)  # without contents, which take no space
    with pytest.raises(Refused, match=r"holds at most 2 GiB, the model has 2\.3 GiB"):
        OrtFormat().run(file)


def test_a_file_of_the_working_directory_with_the_name_of_the_data_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.onnx.data").write_bytes(b"of another model")
    monkeypatch.chdir(tmp_path)
    result = step(Path("relative"), MODELS["mlp"](), "external_data", size_threshold=0)
    assert result["outcome"] == "ok", result["message"]
    assert (tmp_path / "model.onnx.data").read_bytes() == b"of another model"
