"""Traps of the wrapped libraries: each test fails where the guard against one is taken away."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from micro_models import MODELS, made, normal
from onnx import numpy_helper

from autoopt import Repeat, Sequence
from autoopt.model import io
from autoopt.passes.base import Refused
from autoopt.passes.cleanup.graph_cleanup import NameFix
from autoopt.passes.cleanup.simplifiers import OnnxOptimizer, OnnxSlim, RewriteRules, Simplify
from autoopt.passes.convert.conversions import OpsetConversion
from autoopt.passes.fusion.ort_graph import OrtGraphOptimization
from autoopt.passes.fusion.weight_folding import BatchNormFolding
from autoopt.passes.runner import run
from autoopt.passes.shape.fixed_shapes import FixInputShape
from autoopt.passes.verification.equivalence import compare_outputs, run_once
from autoopt.passes.verification.synthetic_feeds import synthetic_feeds


def ops(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


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


def test_double_node_names_are_repaired_before_the_runtime_sees_them(tmp_path: Path) -> None:
    model = MODELS["double_names"]()
    assert step(tmp_path, model, "ort_graph_optimization")["outcome"] == "refused"
    assert "name_fix" in OrtGraphOptimization.requires
    fixed = NameFix()(model)
    assert len({node.name for node in fixed.graph.node}) == 2
    run_once(io.save(fixed, tmp_path / "fixed"), next(synthetic_feeds(fixed)))


def test_onnxoptimizer_pass_that_stops_the_process_is_never_run() -> None:
    with pytest.raises(Refused, match="aborts the whole process"):
        OnnxOptimizer(passes=["fuse_qkv"])(MODELS["mlp"]())


def test_onnxoptimizer_folds_what_its_batchnorm_fusion_leaves(tmp_path: Path) -> None:
    model = MODELS["conv_batchnorm"]()
    after = OnnxOptimizer(passes=["fuse_bn_into_conv"])(model)
    assert ops(after) == ["Conv", "Relu"]
    assert same(model, after, tmp_path)


def test_old_ir_version_is_raised_after_offline_optimisation(tmp_path: Path) -> None:
    """The runtime makes new weights of the old ones, and no inputs for them."""
    model = MODELS["conv_batchnorm"]()
    model.ir_version, model.opset_import[0].version = 3, 9
    for weight in model.graph.initializer:
        model.graph.input.append(onnx.helper.make_tensor_value_info(weight.name, weight.data_type, weight.dims))
    result = step(tmp_path, model, "ort_graph_optimization", level="basic")
    assert result["outcome"] == "ok", result["message"]
    onnx.checker.check_model(str(Path(result["path"], "model.onnx")), full_check=True)


def test_old_ir_version_is_raised_where_weights_are_no_inputs_any_more(tmp_path: Path) -> None:
    result = step(tmp_path, MODELS["old_ir"](), "onnxslim")
    assert result["outcome"] == "ok", result["message"]
    assert io.load(Path(result["path"], "model.onnx")).ir_version >= 4


@pytest.mark.parametrize(
    "name", ["opset_conversion", "simplify", "onnxslim", "onnxoptimizer", "ort_graph_optimization"]
)
def test_models_without_the_default_operators(tmp_path: Path, name: str) -> None:
    assert step(tmp_path, MODELS["trees"](), name)["outcome"] in ("ok", "unchanged")


@pytest.mark.parametrize("name", ["name_fix", "simplify", "ort_graph_optimization", "dynamic_quantization"])
def test_models_without_any_entry_of_operators(tmp_path: Path, name: str) -> None:
    model = MODELS["mlp"]()
    del model.opset_import[:]
    result = step(tmp_path, model, name)
    assert result["outcome"] in ("ok", "unchanged", "refused"), result["message"]
    assert "Error: " not in result["message"]


def test_preparation_for_quantisation_takes_weights_beside_the_model(tmp_path: Path) -> None:
    """As a ModelProto, a large model could not be handed over."""
    model = MODELS["mlp"]()
    path = io.save(model, tmp_path / "source", external=True)
    assert path.with_name("model.onnx.data").exists()
    payload = {"model": {"path": str(path)}, "steps": [{"pass": "quant_pre_process"}], "output": str(tmp_path / "out")}
    result = run(payload)["steps"][0]
    assert result["outcome"] == "ok", result["message"]
    assert same(model, io.load(Path(result["path"], "model.onnx")), tmp_path)


def test_unknown_optimizers_are_not_accepted_silently(tmp_path: Path) -> None:
    result = step(tmp_path, MODELS["mlp"](), "ort_graph_optimization", disabled_optimizers=["MatMulAddFuson"])
    assert result["outcome"] == "refused"
    assert "did you mean 'MatMulAddFusion'" in result["message"]


def test_disabled_optimizers_are_disabled(tmp_path: Path) -> None:
    fused = step(tmp_path / "a", MODELS["mlp"](), "ort_graph_optimization", level="basic")
    plain = step(
        tmp_path / "b",
        MODELS["mlp"](),
        "ort_graph_optimization",
        level="basic",
        disabled_optimizers=["MatMulAddFusion"],
    )
    assert "Gemm" in ops(io.load(Path(fused["path"], "model.onnx")))
    assert plain["outcome"] == "unchanged" or "Gemm" not in ops(io.load(Path(plain["path"], "model.onnx")))


def test_an_absent_execution_provider_is_refused(tmp_path: Path) -> None:
    payload = {
        "model": {"path": str(io.save(MODELS["mlp"](), tmp_path / "s"))},
        "steps": [{"pass": "ort_graph_optimization"}],
        "output": str(tmp_path / "out"),
        "accelerator": {"device": "gpu", "execution_provider": "CUDAExecutionProvider"},
    }
    result = run(payload)["steps"][0]
    assert result["outcome"] == "refused"
    assert "not in the installed onnxruntime" in result["message"]


def test_rewriting_infers_shapes_first() -> None:
    """Without them, onnxscript's rules on Relu and Clip raise."""
    model = made(
        "g (float[2, 4] x) => (float[2, 4] y) { r = Relu (x)\n y = Clip (r, low, high) }",
        low=np.float32(-1),
        high=np.float32(2),
    )
    assert ops(RewriteRules(rules=["clip"])(model)) == ["Clip"]


def test_onnxslim_gets_constants_as_tensors(tmp_path: Path) -> None:
    """It takes `value_float` for something else and computes other results."""
    model = MODELS["constants"]()
    assert same(model, OnnxSlim()(model), tmp_path)


def test_attention_of_todays_exports_is_fused_by_the_default_engine(tmp_path: Path) -> None:
    """The other engine finds none in it."""
    model = MODELS["attention"]()
    fused = step(tmp_path / "a", model, "transformer_fusion")
    assert fused["outcome"] == "ok", fused["message"]
    assert {"MultiHeadAttention", "Attention"} & set(ops(io.load(Path(fused["path"], "model.onnx"))))
    other = step(tmp_path / "b", model, "transformer_fusion", engine="onnxruntime")
    assert other["outcome"] == "unchanged" or "attention" not in str(other["reports"]).lower()


def test_fused_models_import_the_operators_they_use(tmp_path: Path) -> None:
    result = step(tmp_path, MODELS["skip_layer_norm"](), "transformer_fusion", engine="onnxruntime", opt_level=0)
    assert result["outcome"] == "ok", result["message"]
    model = io.load(Path(result["path"], "model.onnx"))
    assert "com.microsoft" in {entry.domain for entry in model.opset_import}


def test_no_conversion_downwards() -> None:
    with pytest.raises(Refused, match="loses operators"):
        OpsetConversion(target_opset=13)(MODELS["relu_only"]())


def test_conversion_falls_back_to_a_lower_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    convert = OpsetConversion._convert

    def limited(self: OpsetConversion, model: onnx.ModelProto) -> onnx.ModelProto:
        if self.target_opset > 19:
            raise RuntimeError("no adapter")
        return convert(self, model)

    monkeypatch.setattr(OpsetConversion, "_convert", limited)
    result = step(tmp_path, MODELS["mlp"](), "opset_conversion", target_opset=23)
    assert (result["outcome"], result["params"]["target_opset"]) == ("ok", 19)
    assert [attempt["params"]["target_opset"] for attempt in result["attempts"]] == [23, 21]


def test_saving_with_external_data_leaves_the_model_alone(tmp_path: Path) -> None:
    model = MODELS["mlp"]()
    before = model.SerializeToString(deterministic=True)
    io.save(model, tmp_path, external=True)
    assert model.SerializeToString(deterministic=True) == before


def test_an_overridable_weight_is_not_folded() -> None:
    """It is an input with a default value: callers may give another one."""
    model = made(
        "g (float[N, 8] x, float[6] s) => (float[N, 6] y) "
        "{ h = Gemm (x, w, b)\n y = BatchNormalization (h, s, o, m, v) }",
        w=normal(8, 6),
        b=normal(6),
        s=np.ones(6, np.float32),
        o=normal(6),
        m=normal(6, seed=1),
        v=np.ones(6, np.float32),
    )
    assert "s" in {value.name for value in BatchNormFolding()(model).graph.input}
    assert "BatchNormalization" in ops(BatchNormFolding()(model))


@pytest.mark.parametrize("engine", ["onnxslim", "onnxsim"])
@pytest.mark.parametrize("fuse", [True, False])
def test_simplify_fuses_only_where_asked(engine: str, fuse: bool, tmp_path: Path) -> None:
    model = MODELS["conv_batchnorm"]()
    after = Simplify(engine=engine, fuse=fuse)(model)
    assert ("BatchNormalization" not in ops(after)) == fuse
    assert same(model, after, tmp_path)


def test_fixed_shapes_reach_the_outputs_and_inner_values() -> None:
    model = onnx.shape_inference.infer_shapes(MODELS["small_cnn"]())
    after = FixInputShape(shapes={"x": [3, 1, 8, 8]})(model)
    assert [d.dim_value for d in after.graph.output[0].type.tensor_type.shape.dim] == [3, 10]
    assert not any(d.dim_param for v in after.graph.value_info for d in v.type.tensor_type.shape.dim)


@pytest.mark.parametrize(
    ("shapes", "reason"),
    [({"z": [1]}, "no input 'z'; it has x"), ({"x": [1, 1]}, "Rank mismatch"), ({"x": [1, 2, 8, 8]}, "existing fixed")],
)
def test_impossible_shapes_are_refused(shapes: dict[str, list[int]], reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        FixInputShape(shapes=shapes)(MODELS["small_cnn"]())


def test_composites_are_passes(tmp_path: Path) -> None:
    model = MODELS["no_ops"]()
    once = Sequence("identity_elimination", Simplify(engine="onnxscript"))(model)
    assert len(once.graph.node) < len(model.graph.node)
    settled = Repeat("onnxscript_optimize", limit=5)(model)
    assert Repeat("onnxscript_optimize")(settled).SerializeToString() == settled.SerializeToString()
    assert same(model, once, tmp_path)


def test_a_composite_declares_what_its_passes_declare(tmp_path: Path) -> None:
    sequence = step(tmp_path, MODELS["mlp"](), "sequence", passes=["name_fix", "shape_inference"])
    assert sequence["equivalence"]["tolerance"] == "lossless"
    refused = step(tmp_path, MODELS["mlp"](), "sequence", passes=["packing_mode", "nowhere"])
    assert refused["outcome"] == "refused"


def test_float_values_of_tensors_are_told_apart_whatever_way_they_are_stored() -> None:
    from autoopt.passes.verification.fingerprint import fingerprint

    raw, typed, other = (MODELS["constants"]() for _ in range(3))
    values = numpy_helper.to_array(typed.graph.initializer[0])
    name = typed.graph.initializer[0].name
    typed.graph.initializer[0].CopyFrom(onnx.helper.make_tensor(name, 1, values.shape, values.tolist()))
    other.graph.initializer[0].CopyFrom(numpy_helper.from_array(values + 1, name))
    assert fingerprint(raw) == fingerprint(typed) != fingerprint(other)
