"""Single clean-up steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
from micro_models import MODELS

from autoopt.model import io
from autoopt.passes.cleanup.graph_cleanup import NameFix
from autoopt.passes.fusion.ort_graph import OrtGraphOptimization
from autoopt.passes.runner import run
from autoopt.passes.verification.equivalence import run_once
from autoopt.passes.verification.synthetic_feeds import synthetic_feeds


def step(tmp_path: Path, model: onnx.ModelProto, name: str, **params: Any) -> dict[str, Any]:
    path = io.save(model, tmp_path / "source")
    payload = {
        "model": {"path": str(path)},
        "steps": [{"pass": name, "params": params}],
        "output": str(tmp_path / "out"),
    }
    result: dict[str, Any] = run(payload)["steps"][0]
    return result


def test_duplicate_node_names_are_repaired(tmp_path: Path) -> None:
    model = MODELS["double_names"]()
    assert step(tmp_path, model, "ort_graph_optimization")["outcome"] == "refused"
    assert "name_fix" in OrtGraphOptimization.requires
    fixed = NameFix()(model)
    assert len({node.name for node in fixed.graph.node}) == 2
    run_once(io.save(fixed, tmp_path / "fixed"), next(synthetic_feeds(fixed)))
