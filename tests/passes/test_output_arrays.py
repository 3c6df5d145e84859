"""Outputs of every kind as arrays."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from autoopt.passes.verification.output_arrays import is_float, output_arrays


def test_tensors_stay_what_they_are() -> None:
    outputs = [np.arange(3), np.ones((2, 2), np.float16)]
    assert [array is output for array, output in zip(output_arrays(outputs), outputs, strict=True)] == [True, True]


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ([np.array([1, 2]), np.array([3])], [[1, 2], [3]]),
        ([[np.array([1])], np.array([2])], [[1], [2]]),
        ([], []),
        ([{"a": 1.0, "b": 2.0}, {"a": 3.0, "b": 4.0}], [[["a", "b"], ["a", "b"]], [[1.0, 2.0], [3.0, 4.0]]]),
        ({7: 0.5, 9: 0.25}, [[[7, 9]], [[0.5, 0.25]]]),
    ],
    ids=["sequence", "sequence in a sequence", "empty sequence", "maps of a batch", "one map"],
)
def test_sequences_and_maps_become_arrays(output: Any, expected: list[Any]) -> None:
    assert [array.tolist() for array in output_arrays([output])] == expected


def test_outputs_keep_their_order() -> None:
    arrays = output_arrays([np.array(1), [np.array(2), np.array(3)], np.array(4)])
    assert [int(array) for array in arrays] == [1, 2, 3, 4]


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
