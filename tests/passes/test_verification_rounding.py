"""Runs with noise, which show how far rounding moves the outputs of a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import parser

from autoopt.model import io
from autoopt.passes.base import Pass
from autoopt.passes.verification.equivalence import Reference, compare
from autoopt.passes.verification.rounding import POOL_SIZES, NoiseSource, is_float, output_arrays


def chain(opset: int = 17, kind: str = "float") -> onnx.ModelProto:
    text = f"""
        <ir_version: 8, opset_import: ["" : {opset}]>
        noise ({kind}[n] x) => ({kind}[n] y) {{ a = Exp(x)  b = Add(a, x)  y = Sigmoid(b) }}
    """
    return parser.parse_model(text)


@pytest.mark.parametrize("kind", ["float", "double", "float16"])
@pytest.mark.parametrize("opset", [9, 10, 13, 17])
def test_noise_moves_each_output_by_a_few_roundings(opset: int, kind: str) -> None:
    dtype: Any = {"float": np.float32, "double": np.float64, "float16": np.float16}[kind]
    values = np.linspace(-2, 2, 1000).astype(dtype)
    source = NoiseSource(chain(opset, kind))
    first, second = source.run({"x": values}), source.run({"x": values})
    assert first is not None
    assert second is not None
    assert first[0].dtype == dtype
    assert not np.array_equal(first[0], second[0])
    exact = 1 / (1 + np.exp(-(np.exp(values.astype(np.float64)) + values)))
    largest = float(np.abs(first[0] - exact).max())
    assert 0 < largest < 100 * float(np.finfo(dtype).eps)


@pytest.mark.parametrize("size", [0, 1, POOL_SIZES[0], POOL_SIZES[0] + 1])
def test_tensors_of_any_size_carry_noise(size: int) -> None:
    outputs = NoiseSource(chain()).run({"x": np.ones(size, np.float32)})
    assert outputs is not None
    assert outputs[0].shape == (size,)
    if size > 1:
        assert np.unique(outputs[0]).size > 1


@pytest.mark.parametrize("closed", [False, True])
def test_the_same_runs_give_the_same_noise(closed: bool) -> None:
    feeds = {"x": np.linspace(-1, 1, 50, dtype=np.float32)}
    one, two = NoiseSource(chain()), NoiseSource(chain())
    for _ in range(3):
        first, second = one.run(feeds), two.run(feeds)
        assert first is not None
        assert second is not None
        np.testing.assert_array_equal(first[0], second[0])
        if closed:
            two.close()


class Equal(Pass):
    tolerance = "equal"


def product(*factors: np.ndarray) -> onnx.ModelProto:
    """A model that multiplies its input by matrices, one after the other."""
    names = ["x", *(f"y{number}" for number in range(len(factors)))]
    nodes, weights = [], []
    for number, factor in enumerate(factors):
        weights.append(onnx.numpy_helper.from_array(factor.astype(np.float32), f"w{number}"))
        nodes.append(onnx.helper.make_node("MatMul", [names[number], f"w{number}"], [names[number + 1]]))
    ends = [onnx.helper.make_tensor_value_info(name, 1, [4, 64]) for name in ("x", names[-1])]
    graph = onnx.helper.make_graph(nodes, "product", ends[:1], ends[1:], weights)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)


def test_a_chain_of_equal_models_measures_rounding_once(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    one, two, three = rng.standard_normal((3, 64, 64))
    models = [product(one, two, three), product(one @ two, three), product(one, two @ three)]
    paths = [io.save(model, tmp_path / str(number)) for number, model in enumerate(models)]
    source = Reference(paths[0], models[0])
    first, after_one = compare(source, paths[1], models[1], Equal())
    second, after_two = compare(after_one, paths[2], models[2], Equal())
    assert (first.status, second.status) == ("same", "same")
    assert source.spread_meter(0).is_used
    assert after_one.spread_meter(0) is source.spread_meter(0)
    assert after_two.spread_meter(0) is source.spread_meter(0)


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (np.array([1, 2]), [[1, 2]]),
        ([np.array([1, 2]), np.array([3])], [[1, 2], [3]]),
        ([[np.array([1])], np.array([2])], [[1], [2]]),
        ([], []),
        ([{"a": 1.0, "b": 2.0}, {"a": 3.0, "b": 4.0}], [[["a", "b"], ["a", "b"]], [[1.0, 2.0], [3.0, 4.0]]]),
        ({7: 0.5, 9: 0.25}, [[[7, 9]], [[0.5, 0.25]]]),
    ],
    ids=["tensor", "sequence", "sequence in a sequence", "empty sequence", "maps of a batch", "one map"],
)
def test_sequences_and_maps_become_arrays(output: Any, expected: list[Any]) -> None:
    assert [array.tolist() for array in output_arrays([output])] == expected


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (np.float16, True), (np.float32, True), (np.float64, True), (ml_dtypes.bfloat16, True),
        (ml_dtypes.float8_e4m3fn, True), (ml_dtypes.float8_e5m2, True), (np.int8, False), (np.bool_, False),
        (object, False),
    ],
)  # fmt: skip
def test_floats_are_those_of_numpy_and_of_onnx(dtype: Any, expected: bool) -> None:
    assert is_float(np.zeros(2, dtype)) is expected
