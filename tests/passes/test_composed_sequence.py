"""Sequences of passes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
from micro_models import MODELS

from autoopt import Repeat, Sequence
from autoopt.model import io
from autoopt.passes.cleanup.simplifiers import Simplify
from autoopt.passes.runner import run
from autoopt.passes.verification.equivalence import run_once
from autoopt.passes.verification.output_comparison import compare_outputs
from autoopt.passes.verification.synthetic_feeds import synthetic_feeds


def same(a: onnx.ModelProto, b: onnx.ModelProto, folder: Path) -> bool:
    feeds = next(synthetic_feeds(a))
    outputs = [run_once(io.save(model, folder / str(i)), feeds) for i, model in enumerate((a, b))]
    return compare_outputs(outputs[0], outputs[1], "equal").status == "same"


def step(tmp_path: Path, model: onnx.ModelProto, name: str, **params: Any) -> dict[str, Any]:
    path = io.save(model, tmp_path / "source")
    payload = {
        "model": {"path": str(path)},
        "steps": [{"pass": name, "params": params}],
        "output": str(tmp_path / "out"),
    }
    result: dict[str, Any] = run(payload)["steps"][0]
    return result


def test_a_sequence_is_a_pass(tmp_path: Path) -> None:
    model = MODELS["no_ops"]()
    once = Sequence("identity_elimination", Simplify(engine="onnxscript"))(model)
    assert len(once.graph.node) < len(model.graph.node)
    settled = Repeat("onnxscript_optimize", limit=5)(model)
    assert Repeat("onnxscript_optimize")(settled).SerializeToString() == settled.SerializeToString()
    assert same(model, once, tmp_path)


def test_a_sequence_runs_required_passes() -> None:
    stage = Sequence("split_stages")(MODELS["mlp"]())
    assert 0 < len(stage.graph.node) < len(MODELS["mlp"]().graph.node)


def test_a_sequence_takes_over_the_declarations_of_its_passes(tmp_path: Path) -> None:
    sequence = step(tmp_path, MODELS["mlp"](), "sequence", passes=["name_fix", "shape_inference"])
    assert sequence["equivalence"]["tolerance"] == "lossless"
    refused = step(tmp_path, MODELS["mlp"](), "sequence", passes=["packing_mode", "nowhere"])
    assert refused["outcome"] == "refused"
