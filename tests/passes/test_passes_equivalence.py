"""Feeds, comparison of outputs, and what counts as a change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from micro_models import MODELS, made, normal

from autoopt.model import io
from autoopt.passes.base import Pass
from autoopt.passes.verification.equivalence import Reference, compare, compare_outputs, run_once
from autoopt.passes.verification.fingerprint import fingerprint, strip_notes
from autoopt.passes.verification.synthetic_feeds import cast_feeds, synthetic_feeds

floats = hnp.arrays(np.float32, st.integers(1, 8), elements=st.floats(-1e6, 1e6, width=32))


@given(floats)
@settings(max_examples=30, deadline=None)
def test_a_value_equals_itself_at_every_tolerance(array: Any) -> None:
    for tolerance in ("lossless", "equal", "lossy"):
        found = compare_outputs([array], [array.copy()], tolerance)  # type: ignore[arg-type]  # one of the literals
        assert (found.status, found.max_abs_error) == ("same", 0)


@given(floats, st.floats(1e-2, 1e3))
@settings(max_examples=30, deadline=None)
def test_a_shift_beyond_rounding_is_seen_unless_lossy(array: Any, share: float) -> None:
    shifted = array + np.float32(share * max(1.0, float(np.abs(array).max())))
    assert compare_outputs([array], [shifted], "equal").status == "different"
    assert compare_outputs([array], [shifted], "lossless").status == "different"
    assert compare_outputs([array], [shifted], "lossy").status == "same"


def f32(*values: float) -> Any:
    return np.array(values, np.float32)


@pytest.mark.parametrize(
    ("before", "after", "tolerance", "status"),
    [
        (f32(1, 2), f32(1, 2.0000002), "equal", "same"),
        (f32(1, 2), f32(1, 2.0000002), "lossless", "different"),
        (f32(1, np.nan), f32(1, np.nan), "lossless", "same"),
        (f32(1, np.inf), f32(1, -np.inf), "equal", "different"),
        (f32(1, 2), f32(1, np.nan), "lossy", "different"),
        (f32(np.nan), f32(1), "lossy", "same"),
        (f32(1, 2), f32(1, 2, 3), "lossy", "different"),
        (f32(1), np.array([1], np.float16), "equal", "different"),
        (f32(1), np.array([1], np.float16), "lossy", "same"),
        (np.arange(5), np.arange(5), "lossless", "same"),
        (np.arange(5), np.arange(5) + 1, "equal", "different"),
        (np.arange(500), np.where(np.arange(500) == 3, 4, np.arange(500)), "equal", "same"),
        (np.arange(500), np.where(np.arange(500) == 3, 4, np.arange(500)), "lossless", "different"),
        (np.array(["a"], object), np.array(["b"], object), "lossless", "different"),
        (np.zeros(0, np.float32), np.zeros(0, np.float32), "equal", "same"),
    ],
)
def test_judging(before: Any, after: Any, tolerance: Any, status: str) -> None:
    assert compare_outputs([before], [after], tolerance).status == status


def test_the_number_of_outputs_counts() -> None:
    assert compare_outputs([f32(1)], [f32(1), f32(1)], "lossy").reason == "2 outputs instead of 1"


@pytest.mark.parametrize("name", [name for name in MODELS if name != "double_names"])
def test_feeds_run_and_are_the_same_every_time(name: str, tmp_path: Path) -> None:
    model = MODELS[name]()
    first, again = next(synthetic_feeds(model)), next(synthetic_feeds(model))
    for key, array in first.items():
        np.testing.assert_array_equal(array, again[key])
    run_once(io.save(model, tmp_path), first)


def test_indices_stay_inside_their_table() -> None:
    ids = next(synthetic_feeds(MODELS["int64_ids"]()))["ids"]
    assert ids.min() >= 0
    assert 2 < ids.max() < 50


def test_open_dimensions_take_what_the_other_model_fixed() -> None:
    model, narrow = MODELS["mlp"](), MODELS["mlp"]()
    narrow.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 7
    assert next(synthetic_feeds(model, narrow))["x"].shape == (7, 64)


def test_dimensions_are_tried_until_the_model_runs(tmp_path: Path) -> None:
    model = made("g (float[N, 1, H, W] x) => (float[N, 1, P, Q] y) { y = Conv (x, w) }", w=normal(1, 1, 40, 40))
    reference = Reference(io.save(model, tmp_path), model)
    reference.run()
    assert reference.feeds is not None
    assert reference.feeds["x"].shape == (1, 1, 64, 64)


def test_feeds_are_cast_to_another_signature() -> None:
    model = made("g (int32[2] x) => (int32[2] y) { y = Identity (x) }")
    cast = cast_feeds({"x": np.array([1, 2], np.int64)}, model)
    assert cast is not None
    assert cast["x"].dtype == np.int32
    assert cast_feeds({"x": np.zeros((3, 3), np.int64)}, model) is None
    assert cast_feeds({"z": np.zeros(2, np.int64)}, model) is None


class Lossless(Pass):
    tolerance = "lossless"


def compared(before: onnx.ModelProto, after: onnx.ModelProto, folder: Path) -> Any:
    paths = [io.save(model, folder / str(i)) for i, model in enumerate((before, after))]
    return compare(Reference(paths[0], before), paths[1], after, Lossless())[0]


def test_a_model_that_only_the_pass_broke_is_different(tmp_path: Path) -> None:
    found = compared(MODELS["relu_only"](), MODELS["double_names"](), tmp_path)
    assert (found.status, "same node name" in found.reason) == ("different", True)


def test_a_model_that_never_ran_is_not_held_against_the_pass(tmp_path: Path) -> None:
    found = compared(MODELS["double_names"](), MODELS["double_names"](), tmp_path)
    assert (found.status, "input model" in found.reason) == ("not run", True)


def test_models_with_chance_in_them_are_not_compared(tmp_path: Path) -> None:
    model = made("g (float[2] x) => (float[2] y) { r = RandomNormalLike (x)\n y = Add (x, r) }")
    found = compared(model, model, tmp_path)
    assert (found.status, "RandomNormalLike" in found.reason) == ("not run", True)


@pytest.mark.parametrize("name", MODELS)
def test_the_fingerprint_is_blind_to_names_notes_and_storage(name: str) -> None:
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


def test_the_fingerprint_sees_what_computes() -> None:
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


def test_types_count_for_passes_that_infer_them() -> None:
    model = MODELS["mlp"]()
    inferred = onnx.shape_inference.infer_shapes(model)
    assert fingerprint(inferred) == fingerprint(model)
    assert fingerprint(inferred, ("types",)) != fingerprint(model, ("types",))


def test_notes_of_libraries_are_stripped_and_others_kept() -> None:
    source, model = MODELS["mlp"](), MODELS["mlp"]()
    model.producer_name = "a library"
    model.graph.node[0].metadata_props.add(key="pkg.onnxscript.rule", value="x")
    model.graph.node[0].metadata_props.add(key="mine", value="x")
    strip_notes(model, source)
    assert model.producer_name == source.producer_name
    assert [e.key for e in model.graph.node[0].metadata_props] == ["mine"]
