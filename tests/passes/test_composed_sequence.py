"""Sequences of passes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from bench import same, step
from micro_models import MODELS
from onnx import numpy_helper

from autoopt import Pass, Repeat, Sequence, get_pass
from autoopt.errors import InputError
from autoopt.passes.cleanup.simplifiers import Simplify
from autoopt.passes.composed.sequence import SequencePass


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


def test_inputs_are_mapped_through_the_passes_of_a_sequence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a renaming inside a sequence is compared with the model before, as it is alone."""
    first = get_pass("rename_inputs_outputs", names={"x": "first"})
    second = get_pass("rename_inputs_outputs", names={"first": "second"})
    monkeypatch.setattr(SequencePass, "_build_all", lambda self: Sequence(first, second)._build_all())
    result = step(tmp_path, MODELS["mlp"](), "sequence", passes=["rename_inputs_outputs"])
    assert result["outcome"] == "ok", result["message"]
    assert result["equivalence"]["status"] == "same"


class Grows(Pass):
    """Adds a weight, and notes the model that it gets."""

    seen: ClassVar[list[Any]] = []

    def run(self, model: Any) -> Any:
        self.seen.append(model)
        model.graph.initializer.append(numpy_helper.from_array(np.ones(1, np.float32), f"weight {len(self.seen)}"))
        return model


def test_a_repeated_sequence_does_not_copy_the_model_every_round() -> None:
    Grows.seen.clear()
    Repeat(Grows(), limit=3)(MODELS["mlp"]())
    assert len(Grows.seen) == 3
    assert all(model is Grows.seen[0] for model in Grows.seen)
