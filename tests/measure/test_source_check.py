"""Signs that the source model and its data do not belong together."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import builders
import numpy as np
import pytest
from onnx import TensorProto, helper
from PIL import Image

from autoopt.cli.data_options import DataOptions
from autoopt.measure import worker
from autoopt.measure.quality import source_check
from autoopt.model import io
from autoopt.tuning import KINDS

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
    found = worker.check_source(request)
    return [*found["stops"], *found["warnings"]]


def test_data_that_belongs_to_the_model_gives_no_warning(classifier: str, tmp_path: Path) -> None:
    x, labels = pictures()
    assert warnings(tmp_path, classifier, x=x, labels=labels) == []


def test_wrongly_scaled_pictures_are_at_chance_and_the_right_scaling_is_named(classifier: str, tmp_path: Path) -> None:
    x, labels = pictures()
    chance, scaling = warnings(tmp_path, classifier, x=x / 255, labels=labels)
    assert "accuracy of 25.0 % on 64 items is no better than chance among 4 classes" in chance
    assert scaling == "with pixels as 0..255 its accuracy is 100.0 %: add --scale 255"


def test_a_slow_model_is_looked_at_on_as_many_items_as_its_time_allows(
    classifier: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_check, "KINDS", replace(KINDS, check_seconds=0.0))
    x, labels = pictures()
    assert warnings(tmp_path, classifier, x=x / 255, labels=labels) == []
    (broken,) = warnings(tmp_path, classifier, x=np.full_like(x[:2], np.nan), labels=labels[:2])
    assert broken.endswith("NaN or infinite values for 1 of 1 items")


def test_enough_items_of_a_slow_model_are_looked_at(
    classifier: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_check, "KINDS", replace(KINDS, seconds_for_more=0.0))
    x, labels = pictures()
    chance, _ = warnings(tmp_path, classifier, x=x / 255, labels=labels)
    assert f" on {KINDS.enough_items} items is no better than chance" in chance


def test_classes_in_another_order_are_named(classifier: str, tmp_path: Path) -> None:
    x, labels = pictures()
    order, *_ = warnings(tmp_path, classifier, x=x, labels=3 - labels)
    assert order.endswith(
        "among 4 classes; the classes are in another order: label 0 is mostly the model's class 3; "
        "--classes 3,2,1,0 gives the model's order"
    )
    (half,) = warnings(tmp_path, classifier, x=x, labels=np.array([0, 2, 1, 3])[labels])
    assert "accuracy of 50.0 % on 64 items is low; the classes are in another order: label 1 is mostly" in half


def test_the_named_order_of_classes_is_right(classifier: str, tmp_path: Path) -> None:
    x, labels = pictures()
    np.savez(tmp_path / "data.npz", x=x, labels=np.array(["night", "dusk", "noon", "dawn"])[labels])
    request = {"candidate": {"path": classifier}, "metrics": ["accuracy"]}
    path = str(tmp_path / "data.npz")
    (told,) = worker.check_source({**request, "data": path})["stops"]
    assert "label dawn is mostly the model's class 3; " in told
    classes = told.partition("--classes ")[2].split()[0]
    assert classes == "night,dusk,noon,dawn"
    found = worker.check_source({**request, "data": DataOptions(classes=classes).reading().config(path)})
    assert found == {"stops": [], "warnings": []}


def test_chance_is_a_warning_and_far_below_chance_stops(classifier: str, tmp_path: Path) -> None:
    x, labels = pictures()
    np.savez(tmp_path / "data.npz", x=x, labels=np.where(labels == 3, 2, (labels + 1) % 3))
    request = {"candidate": {"path": classifier}, "metrics": ["accuracy"], "data": str(tmp_path / "data.npz")}
    assert "accuracy of 0.0 % on 64 items" in worker.check_source(request)["stops"][0]
    np.savez(tmp_path / "data.npz", x=x / 255, labels=labels)
    assert worker.check_source(request)["stops"] == []


@pytest.mark.parametrize(("factor", "offset"), [(1 / 255, 0), (2 / 255, -1), (1 / 500, -0.6)])
def test_the_named_options_scale_arrays_as_the_model_wants_them(
    classifier: str, tmp_path: Path, factor: float, offset: float
) -> None:
    x, labels = pictures()
    x = x * np.float32(factor) + np.float32(offset)
    *_, scaling = warnings(tmp_path, classifier, x=x, labels=labels)
    words = scaling.partition(": add ")[2].split()
    options = dict(zip(words[::2], words[1::2], strict=True))
    chosen = DataOptions(scale=float(options["--scale"]), mean=options.get("--mean"), std=options.get("--std"))
    request = {"candidate": {"path": classifier}, "metrics": ["accuracy"]}
    assert (
        worker.check_source({**request, "data": chosen.reading().config(str(tmp_path / "data.npz"))})["warnings"] == []
    )


def test_the_option_for_a_folder_of_images_replaces_the_usual_scale(classifier: str, tmp_path: Path) -> None:
    x, labels = pictures()
    for index, (picture, label) in enumerate(zip(x[:32, 0], labels, strict=False)):
        folder = tmp_path / "images" / str(label)
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture.clip(0, 255).astype("uint8"), "L").save(folder / f"{index}.png")
    data = DataOptions(grayscale=True).reading().config(str(tmp_path / "images"))
    request = {"candidate": {"path": classifier}, "metrics": ["accuracy"], "data": data}
    assert worker.check_source(request)["warnings"][-1].endswith(": add --scale 1")


def test_class_ids_that_agree_only_by_chance_are_told(tmp_path: Path) -> None:
    nodes = [helper.make_node("Cast", ["x"], ["y"], to=TensorProto.INT64)]
    x, y = builders.tensor("x", ["n"]), builders.tensor("y", ["n"], TensorProto.INT64)
    model = str(io.save(builders.model(nodes, [x], [y], {}), tmp_path / "ids"))
    labels = np.arange(60) % 3
    assert warnings(tmp_path, model, x=labels.astype(np.float32), labels=labels) == []
    (shifted,) = warnings(tmp_path, model, x=labels.astype(np.float32), labels=labels + 1)
    assert shifted == (
        "the source model's accuracy of 0.0 % on 60 items is no better than chance (labels such as 1 and 3, "
        "class ids of 0 to 2); do the labels count from 1? Subtract 1"
    )
    (reordered,) = warnings(tmp_path, model, x=labels.astype(np.float32), labels=(labels + 1) % 3)
    assert "the classes are in another order: label 0 is mostly the model's class 2; --classes 1,2,0 " in reordered
    shuffled = np.random.default_rng(0).permutation(labels)
    (chance,) = warnings(tmp_path, model, x=labels.astype(np.float32), labels=shuffled)
    assert chance.endswith("; check the labels, the order of the columns and the preprocessing")
    mostly_one = np.where(np.arange(60) < 55, 0, 1)
    assert warnings(tmp_path, model, x=mostly_one.astype(np.float32), labels=mostly_one) == []


def test_chance_says_nothing_about_models_that_are_not_judged_by_class(classifier: str, tmp_path: Path) -> None:
    x, labels = pictures()
    assert warnings(tmp_path, classifier, ("recall_at_1",), x=x / 255, labels=labels) == []


def test_labels_that_never_occur_are_named(classifier: str, tmp_path: Path) -> None:
    x, labels = pictures()
    order, first, *_ = warnings(tmp_path, classifier, x=x, labels=labels + 1)
    assert order.endswith("; --classes 1,2,3,4 gives the model's order")
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


def test_values_that_are_worse_than_a_constant_are_told(tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    x, y = builders.tensor("x", ["n", 1]), builders.tensor("y", ["n", 1])
    model = str(io.save(builders.model(nodes, [x], [y], {}), tmp_path / "values"))
    values = np.linspace(1, 2, 20, dtype=np.float32)[:, np.newaxis]
    assert warnings(tmp_path, model, ("r2",), x=values, labels=values[:, 0]) == []
    (message,) = warnings(tmp_path, model, ("r2",), x=values, labels=values[:, 0] * 1000)
    assert message.startswith("the source model's r2 of -24.4 on 20 items is worse than that of a constant; check ")


def test_outputs_that_the_runtime_s_graph_optimization_changes_are_told(tmp_path: Path) -> None:
    """onnxruntime joins two roundings to integers, and keeps the finer one."""
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "fine", "zero"], ["a"]),
        helper.make_node("DequantizeLinear", ["a", "fine", "zero"], ["b"]),
        helper.make_node("QuantizeLinear", ["b", "coarse", "zero"], ["c"]),
        helper.make_node("DequantizeLinear", ["c", "coarse", "zero"], ["y"]),
    ]
    weights = {"fine": np.float32(0.03), "coarse": np.float32(0.5), "zero": np.uint8(128)}
    model = builders.model(nodes, [builders.tensor("x", ["n", 6])], [builders.tensor("y", ["n", 6])], weights)
    x = -np.random.default_rng(0).random((20, 6), np.float32)
    (said,) = warnings(tmp_path, str(io.save(model, tmp_path / "twice")), (), x=x)
    assert "graph optimization changes output 'y' by up to" in said
    settings = {"ranges": {"x": [-1, -0.5]}}
    found = worker.check_source({"candidate": {"path": str(tmp_path / "twice/model.onnx")}, "settings": settings})
    assert said.partition(" by ")[0] in found["warnings"][0]


@pytest.mark.parametrize(("seeds", "warned"), [((None, None), True), ((1.0, 2.0), False)])
def test_random_operators_that_the_runtime_joins_are_told(
    seeds: tuple[float | None, float | None], warned: bool, tmp_path: Path
) -> None:
    """onnxruntime writes Bernoulli in other operators, and then takes equal ones for one."""
    draws = [helper.make_node("Bernoulli", ["x"], [name], seed=seed) for name, seed in zip("ab", seeds, strict=True)]
    x, y = builders.tensor("x", ["n", 8]), builders.tensor("y", ["n", 8])
    model = builders.model([*draws, helper.make_node("Sub", ["a", "b"], ["y"])], [x], [y], {})
    told = warnings(tmp_path, str(io.save(model, tmp_path / "draws")), (), x=np.full((20, 8), 0.5, np.float32))
    assert any("joins 2 random operators into 1" in warning for warning in told) == warned
