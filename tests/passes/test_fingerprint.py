"""The digest that decides if a model changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
from bench import step
from micro_models import MODELS
from onnx import numpy_helper

from autoopt.model import io
from autoopt.passes.verification.fingerprint import fingerprint, strip_notes


@pytest.mark.parametrize("name", MODELS)
def test_the_fingerprint_ignores_names_notes_and_storage(name: str) -> None:
    model, renamed = MODELS[name](), MODELS[name]()
    inner = {o for n in renamed.graph.node for o in n.output} - {o.name for o in renamed.graph.output}
    for node in renamed.graph.node:
        node.name, node.doc_string = f"other_{node.name}", "note"
        node.output[:] = [f"v_{o}" if o in inner else o for o in node.output]
        node.input[:] = [f"v_{i}" if i in inner else i for i in node.input]
    if name not in ("branches", "local_function"):
        assert fingerprint(renamed) == fingerprint(model)
        assert fingerprint(renamed, ("names",)) != fingerprint(model, ("names",))
    assert fingerprint(model) == fingerprint(MODELS[name]())


def test_the_fingerprint_changes_with_the_computation() -> None:
    plain = fingerprint(MODELS["conv_batchnorm"]())

    def changed(edit: Any) -> str:
        model = MODELS["conv_batchnorm"]()
        edit(model)
        return fingerprint(model)

    edits = [
        lambda m: m.graph.node[0].attribute[0].ints.__setitem__(0, 2),
        lambda m: setattr(m.graph.node[2], "op_type", "Neg"),
        lambda m: m.graph.initializer[0].CopyFrom(m.graph.initializer[1]),
        lambda m: m.graph.initializer.append(m.graph.initializer[1]),
        lambda m: setattr(m.opset_import[0], "version", 18),
        lambda m: setattr(m, "ir_version", 9),
        lambda m: m.graph.node[2].input.__setitem__(0, "c"),
        lambda m: setattr(m.graph.output[0], "name", "z"),
    ]
    assert len({plain, *map(changed, edits)}) == len(edits) + 1


def test_types_count_for_passes_that_touch_them() -> None:
    model = MODELS["mlp"]()
    inferred = onnx.shape_inference.infer_shapes(model)
    assert fingerprint(inferred) == fingerprint(model)
    assert fingerprint(inferred, ("types",)) != fingerprint(model, ("types",))


def test_only_notes_of_libraries_are_stripped() -> None:
    source, model = MODELS["mlp"](), MODELS["mlp"]()
    model.producer_name = "a library"
    model.graph.node[0].metadata_props.add(key="pkg.onnxscript.rule", value="x")
    model.graph.node[0].metadata_props.add(key="mine", value="x")
    strip_notes(model, source)
    assert model.producer_name == source.producer_name
    assert [e.key for e in model.graph.node[0].metadata_props] == ["mine"]


def test_the_ir_version_is_raised_if_weights_are_not_inputs(tmp_path: Path) -> None:
    result = step(tmp_path, MODELS["old_ir"](), "onnxslim")
    assert result["outcome"] == "ok", result["message"]
    assert io.load(Path(result["path"], "model.onnx")).ir_version >= 4


def test_tensors_differ_by_value_however_they_are_stored() -> None:
    from autoopt.passes.verification.fingerprint import fingerprint

    raw, typed, other = (MODELS["constants"]() for _ in range(3))
    values = numpy_helper.to_array(typed.graph.initializer[0])
    name = typed.graph.initializer[0].name
    typed.graph.initializer[0].CopyFrom(onnx.helper.make_tensor(name, 1, values.shape, values.tolist()))
    other.graph.initializer[0].CopyFrom(numpy_helper.from_array(values + 1, name))
    assert fingerprint(raw) == fingerprint(typed) != fingerprint(other)
