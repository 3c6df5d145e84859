"""Adapters as inputs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from bench import outputs, step
from micro_models import MODELS, made, normal
from onnx import ModelProto, helper, numpy_helper

from autoopt.model import io
from autoopt.passes.onnx_tools.graphs import rename_inputs
from autoopt.passes.verification.synthetic_feeds import synthetic_feeds

A, B = "layers.0.q_proj.lora_A.weight", "layers.0.q_proj.lora_B.weight"


def adapted(weight: str = "a", first: str = "first") -> ModelProto:
    """A layer with an adapter of rank 4, whose first weight and first node have these names."""
    model = made(
        "g (float[2, 16] x) => (float[2, 16] y)"
        "{ base = MatMul (x, w)\n biased = Add (base, c)\n h = MatMul (x, a)\n d = MatMul (h, b)\n"
        " s = Mul (d, two)\n y = Add (biased, s) }",
        w=normal(16, 16),
        c=normal(16),
        two=np.float32(2),
        a=normal(16, 4, seed=1),
        b=normal(4, 16, seed=2),
    )
    model.graph.node[2].name = first
    model.graph.node[2].input[1] = weight
    for tensor in model.graph.initializer:
        if tensor.name == "a":
            tensor.name = weight
    return model


def base(model: ModelProto) -> ModelProto:
    """The model with an adapter of zeros."""
    for tensor in model.graph.initializer:
        if list(tensor.dims) == [4, 16]:
            tensor.raw_data = bytes(len(tensor.raw_data))
    return model


def session(result: dict[str, object]) -> ort.InferenceSession:
    return ort.InferenceSession(str(result["path"]) + "/model.onnx", providers=["CPUExecutionProvider"])


def named() -> ModelProto:
    return adapted("base_model.model.model.layers.0.q_proj.lora_A.default.weight")


def test_the_weights_become_inputs_that_take_another_adapter(tmp_path: Path) -> None:
    model = named()
    result = step(tmp_path, model, "extract_adapters")
    assert result["outcome"] == "ok", result["message"]
    assert result["reports"]["extract_adapters"] == {
        "file": "adapter_weights.onnx_adapter",
        "inputs": {A: [16, 4], B: [4, 16]},
    }
    feeds = next(synthetic_feeds(model))
    opened = session(result)
    np.testing.assert_array_equal(opened.run(None, feeds)[0], outputs(model, tmp_path, feeds)[0])
    other = {A: normal(16, 9, seed=5), B: np.zeros((9, 16), np.float32)}  # of another rank
    expected = outputs(base(named()), tmp_path, feeds)[0]
    np.testing.assert_allclose(opened.run(None, {**feeds, **other})[0], expected, rtol=1e-6)


def test_a_layer_may_have_sparse_weights(tmp_path: Path) -> None:
    model = named()
    layer = next(tensor for tensor in model.graph.initializer if tensor.name == "w")
    model.graph.initializer.remove(layer)
    values, places = numpy_helper.from_array(np.ones(16, np.float32), "w"), np.arange(0, 256, 17)
    model.graph.sparse_initializer.append(
        helper.make_sparse_tensor(values, numpy_helper.from_array(places, "places"), [16, 16])
    )
    feeds = next(synthetic_feeds(model))
    expected = outputs(model, tmp_path, feeds)[0]
    result = step(tmp_path, model, "extract_adapters")
    assert result["outcome"] == "ok", result["message"]
    np.testing.assert_array_equal(session(result).run(None, feeds)[0], expected)


def test_onnxruntime_activates_the_file(tmp_path: Path) -> None:
    model = named()
    result = step(tmp_path, model, "extract_adapters", defaults="empty")
    feeds = next(synthetic_feeds(model))
    opened = session(result)
    plain = opened.run(None, feeds)[0]
    np.testing.assert_allclose(plain, outputs(base(named()), tmp_path, feeds)[0], rtol=1e-6)
    adapter = ort.LoraAdapter()
    adapter.Load(str(Path(result["path"], "adapter_weights.onnx_adapter")))
    options = ort.RunOptions()
    options.add_active_adapter(adapter)
    np.testing.assert_allclose(opened.run(None, feeds, options)[0], outputs(model, tmp_path, feeds)[0], rtol=1e-6)


def test_inputs_without_a_default_must_be_given(tmp_path: Path) -> None:
    result = step(tmp_path, named(), "extract_adapters", defaults="none")
    assert result["outcome"] == "ok", result["message"]
    assert {value.name for value in session(result).get_inputs()} == {"x", A, B}


def test_safetensors_hold_the_weights(tmp_path: Path) -> None:
    result = step(tmp_path, named(), "extract_adapters", file_format="safetensors")
    data = Path(result["path"], "adapter_weights.safetensors").read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    for name, array in ((A, normal(16, 4, seed=1)), (B, normal(4, 16, seed=2))):
        low, high = header[name]["data_offsets"]
        read = np.frombuffer(data[start + low : start + high], np.float32).reshape(header[name]["shape"])
        np.testing.assert_array_equal(read, array)
    assert header[A]["dtype"] == "F32"


@pytest.mark.parametrize(
    ("model", "names"),
    [
        (adapted(), {"adapter_0.lora_A.weight", "adapter_0.lora_B.weight"}),
        (adapted(first="/model/decoder/fc/default/MatMul"), {"decoder.fc.lora_A.weight", "decoder.fc.lora_B.weight"}),
    ],
)
def test_adapters_without_a_name_are_found_by_their_shape(tmp_path: Path, model: ModelProto, names: set[str]) -> None:
    result = step(tmp_path, model, "extract_adapters")
    assert set(result["reports"]["extract_adapters"]["inputs"]) == names


def test_gemm_with_a_transposed_weight_keeps_its_form(tmp_path: Path) -> None:
    model = made(
        "g (float[2, 16] x) => (float[2, 8] y)"
        "{ base = Gemm <transB = 1> (x, w)\n h = Gemm <transB = 1> (x, a)\n d = Gemm <transB = 1> (h, b)\n"
        " y = Add (base, d) }",
        w=normal(8, 16),
        a=normal(2, 16),
        b=normal(8, 2),
    )
    result = step(tmp_path, model, "extract_adapters")
    assert result["outcome"] == "ok", result["message"]
    shapes = {}
    for value in io.load(Path(result["path"], "model.onnx")).graph.input[1:]:
        dims = value.type.tensor_type.shape.dim
        shapes[value.name[-13:]] = [dim.dim_param or dim.dim_value for dim in dims]
    assert shapes == {"lora_A.weight": ["lora_r", 16], "lora_B.weight": [8, "lora_r"]}


def swapped(tmp_path: Path, one: ModelProto, other: ModelProto) -> tuple[np.ndarray, np.ndarray, set[str]]:
    """Results of `other`, and of `one` with the adapter of `other`, and the names of the inputs for its weights."""
    opened = session(step(tmp_path / "one", one, "extract_adapters"))
    extracted = step(tmp_path / "other", other, "extract_adapters")
    adapter = ort.LoraAdapter()
    adapter.Load(str(Path(extracted["path"], "adapter_weights.onnx_adapter")))
    options = ort.RunOptions()
    options.add_active_adapter(adapter)
    feeds = next(synthetic_feeds(one))
    names = {value.name for value in opened.get_overridable_initializers()}
    return outputs(other, tmp_path, feeds)[0], opened.run(None, feeds, options)[0], names


def loha(seed: int) -> ModelProto:
    """A layer with a LoHa adapter, whose weights are multiplied with each other."""
    model = made(
        "g (float[2, 16] x) => (float[2, 12] y)"
        "{ base = MatMul (x, w)\n m = MatMul (a1, b1)\n n = MatMul (a2, b2)\n d = Mul (m, n)\n t = MatMul (x, d)\n"
        " y = Add (base, t) }",
        w=normal(16, 12),
        a1=normal(16, 3, seed=seed),
        b1=normal(3, 12, seed=seed + 1),
        a2=normal(16, 3, seed=seed + 2),
        b2=normal(3, 12, seed=seed + 3),
    )
    renamed = {old: f"base_model.model.fc.hada_w{old[1]}_{old[0]}.default" for old in ("a1", "b1", "a2", "b2")}
    for tensor in model.graph.initializer:
        tensor.name = renamed.get(tensor.name, tensor.name)
    rename_inputs(model.graph.node, renamed)
    return model


def table(seed: int) -> ModelProto:
    """A table with an adapter."""
    return made(
        "g (int64[2] x) => (float[2, 12] y)"
        "{ base = Gather (w, x)\n h = Gather (a, x)\n d = MatMul (h, b)\n y = Add (base, d) }",
        w=normal(1, 12),
        a=normal(1, 4, seed=seed),
        b=normal(4, 12, seed=seed + 1),
    )


@pytest.mark.parametrize(
    ("build", "names"),
    [
        (loha, {f"fc.hada_w{number}_{matrix}" for number in (1, 2) for matrix in "ab"}),
        (table, {"adapter_0.lora_A.weight", "adapter_0.lora_B.weight"}),
    ],
)
def test_the_file_of_one_model_turns_another_into_it(
    tmp_path: Path, build: Callable[[int], ModelProto], names: set[str]
) -> None:
    expected, result, inputs = swapped(tmp_path, build(1), build(20))
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)
    assert inputs == names


def test_layers_that_share_a_weight_by_chance_get_inputs_of_their_own(tmp_path: Path) -> None:
    """New adapters begin with zeros, which exporters store once, some behind Identity nodes."""
    model = made(
        "g (float[2, 16] x) => (float[2, 16] y)"
        "{ zeros = Identity (b)\n one = MatMul (x, w)\n h = MatMul (x, a)\n d = MatMul (h, b)\n r = Add (one, d)\n"
        " two = MatMul (r, w)\n i = MatMul (r, a2)\n e = MatMul (i, zeros)\n y = Add (two, e) }",
        w=normal(16, 16),
        a=normal(16, 4, seed=1),
        a2=normal(16, 4, seed=2),
        b=np.zeros((4, 16), np.float32),
    )
    for node in model.graph.node:
        node.name = f"/model/{'first' if node.output[0] in 'hd' else 'second'}/{node.output[0]}"
    result = step(tmp_path, model, "extract_adapters")
    assert set(result["reports"]["extract_adapters"]["inputs"]) == {
        f"{layer}.lora_{matrix}.weight" for layer in ("first", "second") for matrix in "AB"
    }


def test_an_empty_adapter_needs_a_rank(tmp_path: Path) -> None:
    model = made("g (float[2, 16] x) => (float[2, 16] y) { y = Mul (x, magnitude) }", magnitude=normal(16))
    model.graph.initializer[0].name = model.graph.node[0].input[1] = "fc.lora_magnitude_vector.default.weight"
    result = step(tmp_path, model, "extract_adapters", defaults="empty")
    assert result["outcome"] == "refused"
    assert "defaults empty" in result["message"]


@pytest.mark.parametrize("name", ["gemm_mlp", "relu_only"])
def test_a_model_without_adapters_is_refused(tmp_path: Path, name: str) -> None:
    result = step(tmp_path, MODELS[name](), "extract_adapters")
    assert result["outcome"] == "refused"
    assert "LoRA" in result["message"]
