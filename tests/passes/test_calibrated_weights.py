"""Weights quantized to fit calibration data."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from bench import ops, outputs, step
from micro_models import made, normal

from autoopt.model import io
from autoopt.passes.base import PassContext
from autoopt.passes.onnx_tools.graphs import attribute_values
from autoopt.passes.quantize.block_weights import BlockGrid
from autoopt.passes.quantize.calibrated_weights import CalibratedWeightQuantization, most_sensitive, rounding_noise
from autoopt.passes.quantize.weight_only import WeightOnlyQuantization
from autoopt.target import Accelerator

DIGITS = Path(__file__).parents[2] / "dags" / "digits"
"""A trained model with data that it was not trained on."""


def digits(name: str) -> np.ndarray:
    with np.load(DIGITS / f"{name}.npz") as arrays:
        return next(array for array in arrays.values() if array.ndim > 1)


def quantized(folder: Path, model: onnx.ModelProto, items: np.ndarray, **params: Any) -> onnx.ModelProto:
    name = model.graph.input[0].name
    pass_ = CalibratedWeightQuantization(**params)
    feeds = [{name: item[None]} for item in items]
    pass_.context = PassContext(folder / "model.onnx", folder, Accelerator(), calibration=lambda: iter(feeds))
    result = pass_.run(ir.from_proto(deepcopy(model)))
    assert result is not None
    return ir.to_proto(result)


@pytest.mark.parametrize(
    ("algorithm", "symmetric"), [("nearest", False), ("awq", True), ("gptq", False), ("awq_gptq", True)]
)
def test_a_trained_model_stays_closer_than_with_plain_rounding_at_equal_bits(
    tmp_path: Path, algorithm: str, symmetric: bool
) -> None:
    model = io.load(DIGITS / "model.onnx")
    feed = {model.graph.input[0].name: digits("evaluation")}
    params = {"algorithm": algorithm, "is_symmetric": symmetric, "samples": 0}
    fitted = quantized(tmp_path, model, digits("calibration")[:32], **params)
    plain = WeightOnlyQuantization(is_symmetric=symmetric)(model)
    exact, near, nearest = (outputs(each, tmp_path, feed)[0] for each in (model, fitted, plain))
    assert np.square(near - exact).mean() < np.square(nearest - exact).mean()


def two_matrices() -> onnx.ModelProto:
    """Rounding of the first matrix does harm, that of the second does not."""
    return made(
        "g (float[N, 64] x) => (float[N, 64] y) { [a] h = MatMul (x, v)\n [b] s = MatMul (x, w)\n"
        " t = Mul (s, little)\n y = Add (h, t) }",
        v=normal(64, 64),
        w=normal(64, 64, seed=1),
        little=np.float32(1e-3),
    )


@pytest.mark.parametrize(("share", "bits"), [(0.0, [4, 4]), (0.5, [8, 4]), (1.0, [8, 8])])
def test_sensitive_weights_get_8_bits(tmp_path: Path, share: float, bits: list[int]) -> None:
    model = quantized(tmp_path, two_matrices(), normal(8, 64), sensitive_share=share)
    nodes = {node.name[0]: node for node in model.graph.node if node.op_type == "MatMulNBits"}
    attributes = {attribute.name: attribute.i for node in nodes.values() for attribute in node.attribute}
    assert attributes["block_size"] == 32
    found = [int(nodes[name].name[-1]) for name in ("a", "b")]
    assert found == bits


def test_weights_that_a_table_shares_stay_for_the_table(tmp_path: Path) -> None:
    model = made(
        "g (float[N, 16] x, int64[N] i) => (float[N, 16] y){ e = Gather (w, i)\n h = MatMul (x, w)\n y = Add (e, h) }",
        w=normal(16, 16),
    )
    pass_ = CalibratedWeightQuantization(algorithm="awq", block_size=16)
    feed = {"x": normal(4, 16), "i": np.arange(4)}
    pass_.context = PassContext(tmp_path / "m.onnx", tmp_path, Accelerator(), calibration=lambda: iter([feed]))
    expected = outputs(model, tmp_path, feed)[0]
    result = ir.to_proto(pass_.run(ir.from_proto(model)))
    assert ops(result).count("Gather") == 1
    assert np.abs(outputs(result, tmp_path, feed)[0] - expected).max() < np.abs(expected).max() / 4


@pytest.mark.parametrize("algorithm", ["awq", "gptq"])
def test_embeddings_and_head_have_bits_of_their_own_and_stay_tied(tmp_path: Path, algorithm: str) -> None:
    table = normal(96, 64)
    model = made(
        "g (int64[N] i) => (float[N, 96] y) { e = Gather (t, i)\n h = MatMul (e, u)\n y = MatMul (h, w) }",
        t=table,
        u=normal(64, 64, seed=1),
        w=np.ascontiguousarray(table.T),
    )
    feed = {"i": np.arange(8)}
    pass_ = CalibratedWeightQuantization(algorithm=algorithm, embedding_bits=8, head_bits=8)
    pass_.context = PassContext(tmp_path / "m.onnx", tmp_path, Accelerator(), calibration=lambda: iter([feed]))
    expected = outputs(model, tmp_path, feed)[0]
    result = ir.to_proto(pass_.run(ir.from_proto(model)))
    settings = map(attribute_values, result.graph.node)
    assert [each["bits"] for each in settings if "bits" in each] == [8, 4, 8]
    assert sum(len(tensor.dims) == 3 for tensor in result.graph.initializer) == 2, "the table is stored once"
    assert np.abs(outputs(result, tmp_path, feed)[0] - expected).max() < np.abs(expected).max() / 4


def test_a_share_beyond_one_and_missing_data_are_refused(tmp_path: Path) -> None:
    name = "calibrated_weight_quantization"
    assert step(tmp_path, two_matrices(), name, True, sensitive_share=1.5)["outcome"] == "refused"
    assert "calibration data" in step(tmp_path, two_matrices(), name)["message"]


def test_noise_is_that_of_the_outputs_but_the_cache_with_one_matrix_rounded(tmp_path: Path) -> None:
    grid = BlockGrid(4, 16, True)
    weights = {"v": normal(16, 16), "w": normal(16, 16, seed=1)}
    text = (
        "g (int64[N, S] input_ids, float[N, 16] x, float[N, 1, P, 4] past_key)"
        " => (float[N, 16] y, float[N, 1, P, 4] present_key)"
        "{ h = MatMul (x, v)\n r = Tanh (h)\n y = MatMul (r, w)\n"
        " sum = ReduceSum <keepdims = 0> (h)\n present_key = Mul (past_key, sum) }"
    )
    model = made(text, **weights)
    tokens, past = np.zeros((4, 1), np.int64), normal(4, 1, 3, 4, seed=3)
    feed = {"input_ids": tokens, "x": normal(4, 16, seed=2), "past_key": past}
    open_model = ir.from_proto(model)
    matrices = {open_model.graph.initializers[name]: weight for name, weight in weights.items()}
    noise = {value.name: ratio for value, ratio in rounding_noise(open_model, matrices, grid, [feed], tmp_path).items()}
    exact = outputs(model, tmp_path, feed)[0]
    for name in weights:
        rounded = made(text, **{**weights, name: grid.rounded(weights[name])})
        difference = outputs(rounded, tmp_path, feed)[0] - exact
        np.testing.assert_allclose(noise[name], np.square(difference).sum() / np.square(exact).sum(), rtol=1e-3)


def test_the_noisiest_for_their_size_are_chosen_while_they_fit() -> None:
    noise = {"large": 8.0, "small": 1.0, "tiny": 0.01}
    sizes = {"large": 80, "small": 5, "tiny": 15}
    assert most_sensitive(noise, sizes, 0) == set()
    assert most_sensitive(noise, sizes, 0.2) == {"small", "tiny"}
    assert most_sensitive(noise, sizes, 0.85) == {"small", "large"}
    assert most_sensitive(noise, sizes, 1) == set(sizes)
