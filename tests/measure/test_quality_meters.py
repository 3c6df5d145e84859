"""The quality meters on real models."""

from __future__ import annotations

import builders
import numpy as np
import pytest
from measure_helpers import ask
from onnx import helper

from autoopt.errors import InputError
from autoopt.measure import worker
from autoopt.measure.meters import meters_for
from autoopt.model import io

CLASSES = 4


EACH = 300


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """A model that gives back its scores, one that always says class 0, and right answers sorted by class."""
    folder = tmp_path_factory.mktemp("sorted")
    paths = {}
    for name, weights in (("right", np.eye(CLASSES)), ("collapsed", np.eye(CLASSES)[:, [0] * CLASSES])):
        if name == "collapsed":
            weights[:, 1:] = -1
        nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
        x, y = builders.tensor("x", ["n", CLASSES]), builders.tensor("y", ["n", CLASSES])
        paths[name] = str(io.save(builders.model(nodes, [x], [y], {"w": weights.astype(np.float32)}), folder / name))
    labels = np.repeat(np.arange(CLASSES), EACH)
    x = np.eye(CLASSES, dtype=np.float32)[labels] + 0.1
    np.savez(folder / "data.npz", x=x, labels=labels)
    np.savez(folder / "named.npz", x=x, labels=np.array(["ant", "bee", "cat", "dog"])[labels])

    def ask(function, metric, candidate="collapsed", **settings):
        state, data = settings.pop("fed_back", {}), settings.pop("data", "data.npz")
        return getattr(worker, function)(
            {
                "candidate": {"path": paths[candidate]},
                "source": {"path": paths["right"]},
                "metrics": [metric],
                "data": {"path": str(folder / data), **state},
                "settings": settings,
            }
        )

    return ask


def test_a_candidate_that_collapsed_to_the_first_class_does_not_hold(asked):
    wanted = [{"metric": "accuracy", "max_drop": 0.1}]
    settings = {"sequential": True, "constraints": wanted}
    found = asked("task", "accuracy", **settings)
    assert found["details"]["items"] < found["details"]["of"] == CLASSES * EACH
    assert found["details"]["drops"]["accuracy"]["low"] > 0.1
    assert found["source_metrics"]["accuracy"]["value"] == 1.0
    whole = asked("task", "accuracy")
    assert whole["details"]["drops"]["accuracy"]["value"] == pytest.approx(1 - 1 / CLASSES)
    assert asked("task", "accuracy", **settings) == found


def test_names_of_classes_count_as_their_ids(asked):
    settings = {"sequential": True, "constraints": [{"metric": "accuracy", "max_drop": 0.1}]}
    for metric, more in (("accuracy", {}), ("top1_accuracy", {}), ("f1", {}), ("accuracy", settings)):
        named, numbered = asked("task", metric, data="named.npz", **more), asked("task", metric, **more)
        fallen = [reply["details"].pop("fallen_class", {"name": "1"})["name"] for reply in (named, numbered)]
        assert named == numbered
        assert (fallen[0].isdigit(), fallen[1].isdigit()) == (metric == "top1_accuracy", True)


def test_a_sequential_test_stops_at_the_first_subset_that_decides(files, tmp_path):
    x = np.tile(np.load(files["data"])["x"], (20, 1))
    np.savez(tmp_path / "many.npz", x=x, labels=np.tile(np.load(files["data"])["labels"], 20))
    many = {**files, "many": str(tmp_path / "many.npz")}
    wanted = [{"metric": "accuracy", "max_drop": 0.05}]
    found = ask("task", many, "other", ["accuracy"], data="many", sequential=True, constraints=wanted)
    assert found["details"]["items"] < found["details"]["of"] == 1200
    whole = ask("task", many, "other", ["accuracy"], data="many", sequential=True, constraints=[])
    assert whole["details"]["items"] == 1200


def test_task_metrics_without_labels_are_an_error(files):
    with pytest.raises(InputError, match="labelled"):
        ask("task", files, "source", ["accuracy"], data="plain")


def test_fidelity_works_on_data_and_on_synthetic_inputs(files):
    for data in ("plain", None):
        same = ask("fidelity", files, "copy", ["cosine", "max_abs_error", "top1_agreement"], data=data)
        assert same["metrics"]["cosine"]["value"] == pytest.approx(1.0)
        assert same["metrics"]["max_abs_error"]["value"] == 0.0
        other = ask("fidelity", files, "other", ["cosine", "top1_agreement"], data=data)
        assert other["metrics"]["cosine"]["value"] < 0.999
        assert set(other["details"]["outputs"]) == {"y"}


def test_equal_graphs_with_other_external_data_are_not_the_same_model(tmp_path):
    paths = [str(io.save(builders.mlp(width=400), tmp_path / name, external=True)) for name in ("a", "b")]
    weights = tmp_path / "b" / "model.onnx.data"
    weights.write_bytes((-np.frombuffer(weights.read_bytes(), np.float32)).tobytes())
    payload = {"candidate": {"path": paths[1]}, "source": {"path": paths[0]}, "metrics": ["cosine"]}
    assert worker.fidelity(payload)["metrics"]["cosine"]["value"] < 0.999


def test_custom_metrics_of_a_user_script(files, tmp_path):
    script = tmp_path / "mine.py"
    script.write_text(
        "from autoopt.measure.quality.task import register_metric\n"
        "@register_metric('half_right', unit='fraction')\n"
        "def half_right(outputs, labels):\n"
        "    'Half a point for each right item.'\n"
        "    return 0.5 * (outputs[0].argmax(-1) == labels)\n"
        "@register_metric('one_number', direction='minimize')\n"
        "def one_number(outputs, labels):\n"
        "    return 7\n"
    )
    payload = {
        "candidate": {"path": files["other"]},
        "source": {"path": files["source"]},
        "metrics": ["half_right", "one_number"],
        "data": files["data"],
        "user_script": str(script),
    }
    found = worker.custom(payload)
    assert found["source_metrics"]["half_right"]["value"] == 0.5
    assert found["metrics"]["one_number"] == {"value": 7.0, "low": 7.0, "high": 7.0}
    assert found["details"]["drops"]["half_right"]["value"] > 0
    assert [m.name for m in meters_for(["half_right", "size"], custom=["half_right"])] == ["size", "custom"]
    with pytest.raises(InputError, match="no custom metric"):
        worker.custom({**payload, "metrics": ["half_rihgt"]})


def scaled(folder, factor: float, scale: np.ndarray | float = 1.0) -> str:
    """`x` [n, 4] -> scores `y` = factor * x * scale."""
    nodes = [helper.make_node("Mul", ["x", "w"], ["y"])]
    x, y = builders.tensor("x", ["n", CLASSES]), builders.tensor("y", ["n", CLASSES])
    weights = {"w": (factor * np.ones(CLASSES) * scale).astype(np.float32)}
    return str(io.save(builders.model(nodes, [x], [y], weights), folder))


@pytest.mark.parametrize(("factor", "is_certain"), [(1 + 1e-6, True), (1.01, False)])
def test_predictions_that_agree_are_certain_only_if_the_outputs_do(tmp_path, factor, is_certain):
    labels = np.arange(54) % CLASSES
    np.savez(tmp_path / "data.npz", x=np.eye(CLASSES, dtype=np.float32)[labels], labels=labels)
    payload = {
        "candidate": {"path": scaled(tmp_path / "candidate", factor)},
        "source": {"path": scaled(tmp_path / "source", 1.0)},
        "metrics": ["accuracy"],
        "data": {"path": str(tmp_path / "data.npz")},
    }
    details = worker.task(payload)["details"]
    drop = details["drops"]["accuracy"]
    assert drop["value"] == 0.0
    assert (drop["high"] == 0.0) is is_certain
    assert details["resolutions"]["accuracy"] == pytest.approx(0.0664, abs=1e-4)
    if not is_certain:
        assert drop["high"] == pytest.approx(details["resolutions"]["accuracy"], abs=1e-6)


def test_the_ratio_of_a_metric_is_paired_like_its_drop(files):
    found = ask("task", files, "other", ["accuracy"])
    drop, ratio = found["details"]["drops"]["accuracy"], found["ratios"]["accuracy"]
    source = found["source_metrics"]["accuracy"]["value"]
    assert ratio["value"] == pytest.approx(1 - drop["value"] / source)
    assert (ratio["low"], ratio["high"]) == pytest.approx((1 - drop["high"] / source, 1 - drop["low"] / source))
