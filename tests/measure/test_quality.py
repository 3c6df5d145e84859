"""Parts of data that are sorted by class."""

from __future__ import annotations

import builders
import numpy as np
import pytest
from onnx import helper

from autoopt.measure import worker
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
    np.savez(folder / "data.npz", x=np.eye(CLASSES, dtype=np.float32)[labels] + 0.1, labels=labels)

    def ask(function, metric, candidate="collapsed", **settings):
        state = settings.pop("fed_back", {})
        return getattr(worker, function)(
            {
                "candidate": {"path": paths[candidate]},
                "source": {"path": paths["right"]},
                "metrics": [metric],
                "data": {"path": str(folder / "data.npz"), **state},
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


def test_fidelity_sees_every_class(asked):
    assert asked("fidelity", "top1_agreement")["metrics"]["top1_agreement"]["value"] < 0.5
    assert asked("fidelity", "top1_agreement", candidate="right")["metrics"]["top1_agreement"]["value"] == 1.0
