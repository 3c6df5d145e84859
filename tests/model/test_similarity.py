"""Similarity of two models."""

from __future__ import annotations

import math
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from autoopt.model.inspection import Inspection
from autoopt.model.similarity import features, same_graph


def model(*ops: str, **fields: int) -> Inspection:
    """An inspection with two of each operator."""
    return Inspection((), (), {"": 17}, 8, dict.fromkeys(ops, 2), **{"parameters": 10_000, "bytes": 40_000, **fields})


CNN = model("Conv", "BatchNormalization", "Relu", "Gemm")
TRANSFORMER = model("MatMul", "Softmax", "LayerNormalization", "Gather", "Add")

counts = st.dictionaries(st.sampled_from(("Conv", "MatMul", "Add", "Relu", "Gemm")), st.integers(1, 50), max_size=4)
inspections = st.builds(
    lambda ops, size: replace(model(), op_counts=ops, parameters=size), counts, st.integers(0, 10**9)
)


def test_a_retrained_model_has_the_same_graph_and_a_wider_one_has_not() -> None:
    assert same_graph(CNN, replace(CNN, bytes=CNN.bytes + 1))
    assert not same_graph(CNN, replace(CNN, parameters=CNN.parameters + 1))
    assert not same_graph(CNN, TRANSFORMER)


@given(inspections)
def test_features_are_finite(a: Inspection) -> None:
    assert all(map(math.isfinite, features(a)))


def test_features_tell_kinds_of_models_apart() -> None:
    convolutional = replace(CNN, layer_parameters={"Conv": 9_000, "Gemm": 1_000})
    similar = replace(CNN, layer_parameters={"Conv": 8_000, "Gemm": 2_000})
    dense = replace(TRANSFORMER, layer_parameters={"MatMul": 9_000})
    near = math.dist(features(convolutional), features(similar))
    assert near < math.dist(features(convolutional), features(dense))
