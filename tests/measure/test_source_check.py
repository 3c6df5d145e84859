"""Signs that the source model and its data do not belong together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import builders
import numpy as np
import pytest
from onnx import TensorProto, helper

from autoopt.measure import worker
from autoopt.model import io

CENTERS = np.array([32, 96, 160, 224], np.float32)
"""Brightness of the pictures of each class, of 0 to 255."""


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: Any) -> str:
    """A model that tells pictures of 8 x 8 pixels of 0 to 255 by their brightness."""
    nodes = [
        helper.make_node("GlobalAveragePool", ["x"], ["mean"]),
        helper.make_node("Flatten", ["mean"], ["flat"]),
        helper.make_node("Gemm", ["flat", "w", "b"], ["scores"]),
    ]
    weights = {"w": 2 * CENTERS[np.newaxis], "b": -(CENTERS**2)}
    x, scores = builders.tensor("x", ["n", 1, 8, 8]), builders.tensor("scores", ["n", 4])
    return str(io.save(builders.model(nodes, [x], [scores], weights), tmp_path_factory.mktemp("classifier")))


def pictures() -> tuple[np.ndarray, np.ndarray]:
    labels = np.arange(64) % 4
    noise = np.random.default_rng(0).uniform(-20, 20, (64, 1, 8, 8))
    return (CENTERS[labels].reshape(-1, 1, 1, 1) + noise).astype(np.float32), labels


def warnings(folder: Path, model: str, metrics: tuple[str, ...] = ("accuracy",), **arrays: np.ndarray) -> list[str]:
    np.savez(folder / "data.npz", **arrays)  # type: ignore[arg-type]
    request = {"candidate": {"path": model}, "metrics": list(metrics), "data": {"path": str(folder / "data.npz")}}
    return worker.check_source(request)["warnings"]


def test_data_that_belongs_to_the_model_gives_no_warning(classifier: str, tmp_path: Path) -> None:
    x, labels = pictures()
    assert warnings(tmp_path, classifier, x=x, labels=labels) == []


def test_wrongly_scaled_pictures_are_at_chance_and_the_right_scaling_is_named(classifier: str, tmp_path: Path) -> None:
    x, labels = pictures()
    chance, scaling = warnings(tmp_path, classifier, x=x / 255, labels=labels)
    assert "accuracy of 25.0% on 64 items is no better than chance among 4 classes" in chance
    assert scaling == "with pixels as 0..255 its accuracy is 100.0%: add --scale 1"


def test_chance_says_nothing_about_models_that_are_not_judged_by_class(classifier: str, tmp_path: Path) -> None:
    x, labels = pictures()
    assert warnings(tmp_path, classifier, ("recall_at_1",), x=x / 255, labels=labels) == []


def test_labels_that_never_occur_are_named(classifier: str, tmp_path: Path) -> None:
    x, labels = pictures()
    first, *_ = warnings(tmp_path, classifier, x=x, labels=labels + 1)
    assert first == "labels such as 4 never occur in the output of 4 classes; do they count from 1?"
    labels[0] = 9
    first, *others = warnings(tmp_path, classifier, x=x, labels=labels)
    assert (first, others) == ("labels such as 9 never occur in the output of 4 classes", [])


def test_constant_outputs_and_nan_are_named_without_labels_too(tmp_path: Path) -> None:
    nodes = [helper.make_node("Mul", ["x", "w"], ["y"])]
    x, y = builders.tensor("x", ["n", 2]), builders.tensor("y", ["n", 2], TensorProto.FLOAT)
    zero = str(io.save(builders.model(nodes, [x], [y], {"w": np.zeros(2, np.float32)}), tmp_path / "zero"))
    items = np.random.default_rng(0).normal(size=(16, 2)).astype(np.float32)
    assert warnings(tmp_path, zero, x=items) == ["the model returns the same output for all of 16 items"]
    items[3] = np.nan
    assert warnings(tmp_path, zero, x=items) == ["the model returns NaN or infinite values for 1 of 16 items"]
