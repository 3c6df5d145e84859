"""Similarity of two models."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoopt.model.inspection import Inspection
from autoopt.model.similarity import features, same_graph, similarity


def model(*ops: str, **fields: int) -> Inspection:
    """An inspection with two of each operator."""
    return Inspection((), (), {"": 17}, 8, dict.fromkeys(ops, 2), **{"parameters": 10_000, "bytes": 40_000, **fields})


CNN = model("Conv", "BatchNormalization", "Relu", "Gemm")
TRANSFORMER = model("MatMul", "Softmax", "LayerNormalization", "Gather", "Add")
TREES = model("ai.onnx.ml::TreeEnsembleClassifier")

counts = st.dictionaries(st.sampled_from(("Conv", "MatMul", "Add", "Relu", "Gemm")), st.integers(1, 50), max_size=4)
inspections = st.builds(
    lambda ops, size: replace(model(), op_counts=ops, parameters=size), counts, st.integers(0, 10**9)
)


@given(inspections, inspections)
def test_similarity_is_symmetric_and_between_0_and_1(a: Inspection, b: Inspection) -> None:
    assert similarity(a, b) == pytest.approx(similarity(b, a))
    assert 0 <= similarity(a, b) <= 1 + 1e-9


@given(inspections)
def test_a_model_is_most_similar_to_itself(a: Inspection) -> None:
    assert similarity(a, a) == pytest.approx(1.0 if a.op_counts else 0.0)


@given(inspections, st.integers(2, 9))
def test_repeating_every_layer_changes_little(a: Inspection, times: int) -> None:
    repeated = replace(a, op_counts={op: times * count for op, count in a.op_counts.items()})
    assert similarity(a, repeated) == pytest.approx(similarity(a, a))


def test_other_operators_and_sizes_make_models_less_similar() -> None:
    assert similarity(CNN, TREES) == 0
    assert similarity(CNN, TRANSFORMER) < 0.5
    assert similarity(CNN, replace(CNN, parameters=10 * CNN.parameters)) == pytest.approx(10**-0.1, rel=1e-3)


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
