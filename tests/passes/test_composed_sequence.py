"""Sequences of passes."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench import same, step
from micro_models import MODELS

from autoopt import Repeat, Sequence
from autoopt.errors import InputError
from autoopt.passes.cleanup.simplifiers import Simplify


def test_a_sequence_is_a_pass(tmp_path: Path) -> None:
    model = MODELS["no_ops"]()
    once = Sequence("identity_elimination", Simplify(engine="onnxscript"))(model)
    assert len(once.graph.node) < len(model.graph.node)
    settled = Repeat("onnxscript_optimize", limit=5)(model)
    assert Repeat("onnxscript_optimize")(settled).SerializeToString() == settled.SerializeToString()
    assert same(model, once, tmp_path)


def test_a_list_is_no_pass() -> None:
    with pytest.raises(InputError, match=r"takes passes or their names, not a list.*Sequence\(\*passes\)"):
        Sequence(["name_fix", "shape_inference"])  # type: ignore[arg-type]  # the mistake


def test_a_sequence_runs_required_passes() -> None:
    stage = Sequence("split_stages")(MODELS["mlp"]())
    assert 0 < len(stage.graph.node) < len(MODELS["mlp"]().graph.node)


def test_a_sequence_takes_over_the_declarations_of_its_passes(tmp_path: Path) -> None:
    sequence = step(tmp_path, MODELS["mlp"](), "sequence", passes=["name_fix", "shape_inference"])
    assert sequence["equivalence"]["tolerance"] == "lossless"
    refused = step(tmp_path, MODELS["mlp"](), "sequence", passes=["packing_mode", "nowhere"])
    assert refused["outcome"] == "refused"
