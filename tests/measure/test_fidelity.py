"""Distances between outputs."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from types import SimpleNamespace

import builders
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from onnx import helper

from autoopt.measure import inference, worker
from autoopt.measure.quality import fidelity
from autoopt.measure.quality.fidelity import compare_output, cosine, kl, largest_error, same_class
from autoopt.metrics import WORST
from autoopt.model import io
from autoopt.tuning import KINDS

VECTOR = hnp.arrays(np.float32, 6, elements=st.floats(-100, 100, width=32))
ALL = ("cosine", "relative_l2", "max_abs_error", "top1_agreement", "kl")


@given(VECTOR)
def test_an_output_is_as_near_as_can_be_to_itself(vector):
    item = [vector.reshape(1, -1)]
    values = {name: compare_output(name, item, item).value for name in ALL}
    assert values == pytest.approx(
        {"cosine": 1, "relative_l2": 0, "max_abs_error": 0, "top1_agreement": 1, "kl": 0}, abs=1e-6
    )


def test_known_distances():
    ours, theirs = [np.array([[3.0, 4.0]])], [np.array([[4.0, 3.0]])]
    assert compare_output("cosine", ours, theirs).value == pytest.approx(24 / 25)
    assert compare_output("relative_l2", ours, theirs).value == pytest.approx(math.sqrt(2) / 5)
    assert compare_output("max_abs_error", ours, theirs).value == 1.0
    assert compare_output("top1_agreement", ours, theirs).value == 0.0
    p, q = np.array([[0.5, 0.5]]), np.array([[0.9, 0.1]])
    assert kl(q, p) == pytest.approx(0.5 * math.log(0.5 / 0.9) + 0.5 * math.log(0.5 / 0.1))


@pytest.mark.parametrize("ours", [np.full((1, 3), np.nan), np.array([[np.inf, 0, 0]]), np.zeros((1, 4))])
def test_broken_outputs_are_as_far_as_can_be_and_still_json(ours):
    theirs = [np.array([[1.0, 2.0, 3.0]])]
    assert compare_output("cosine", [ours], theirs).value == 0.0
    assert compare_output("max_abs_error", [ours], theirs).value == WORST
    assert compare_output("relative_l2", [ours], theirs).value == WORST
    assert compare_output("top1_agreement", [ours], theirs).value == 0.0
    json.dumps(WORST, allow_nan=False)


def test_texts_and_ids_agree_or_not():
    texts = [np.array(["a"], object), np.array(["b"], object)]
    other = [np.array(["a"], object), np.array(["c"], object)]
    assert compare_output("top1_agreement", texts, other).value == 0.5
    assert compare_output("cosine", texts, other) is None
    assert compare_output("top1_agreement", [np.array([1])], [np.array([2])]).value == 0.0


def test_a_single_score_agrees_on_its_side():
    assert compare_output("top1_agreement", [np.array([[0.6]])], [np.array([[0.9]])]).value == 1.0
    assert compare_output("top1_agreement", [np.array([[0.4]])], [np.array([[0.9]])]).value == 0.0


def test_intervals_come_from_the_items():
    theirs = [np.eye(4)[[i % 4]] for i in range(40)]
    ours = [t + 0.1 * (i % 3) for i, t in enumerate(theirs)]
    found = compare_output("cosine", ours, theirs)
    assert found.low < found.value < found.high <= 1.0


def test_the_axis_of_the_classes_decides_what_agrees():
    source = np.array([[[0.9, 0.2], [0.1, 0.8]]])  # classes along axis 1
    candidate = np.array([[[0.8, 0.9], [0.2, 0.1]]])
    assert compare_output("top1_agreement", [candidate], [source], axis=1).value == 0.5
    assert compare_output("top1_agreement", [source], [source], axis=1).value == 1.0
    assert compare_output("kl", [candidate], [source], axis=1).value > 0


def test_a_divergence_needs_more_than_one_class():
    single = [np.array([[0.7]])]
    assert compare_output("kl", single, single) is None
    assert compare_output("kl", [np.array(0.7)], [np.array(0.7)]) is None


def test_values_that_are_broken_in_the_same_places_are_equal():
    broken = np.array([[np.nan, 1.0, np.inf]])
    assert largest_error(broken, broken) == 0.0
    assert cosine(broken, broken) == 1.0
    assert cosine(np.array([[np.nan, 1.0, 2.0]]), broken) == 0.0


def test_blanks_of_both_do_not_count():
    ours, theirs = [np.array([[np.nan, 3.0, 4.0]])], [np.array([[np.nan, 3.0, 5.0]])]
    assert compare_output("max_abs_error", ours, theirs).value == 1.0
    assert compare_output("relative_l2", ours, theirs).value == pytest.approx(1 / math.sqrt(34))
    assert compare_output("cosine", ours, theirs).value == pytest.approx(29 / (5 * math.sqrt(34)))
    assert compare_output("relative_l2", ours, [np.array([[2.0, 3.0, 4.0]])]).value == WORST
    assert compare_output("cosine", ours, [np.array([[np.inf, 3.0, 4.0]])]).value == 0.0


def test_nothing_agrees_with_nothing():
    empty = np.zeros((0,), np.int64)
    assert same_class(empty, empty) == 1.0
    assert cosine(np.zeros(3), np.zeros(3)) == 1.0
    assert cosine(np.zeros(3), np.ones(3)) == 0.0


STEPS, CLASSES = 12, 6


def model(folder: Path, weights: np.ndarray, *, open_state: bool = False) -> str:
    """`x` [n, classes, steps] -> scores `y` = weights * x and `z` = x + 1, shaped like `x` as a state is.

    With `open_state` the number of steps of `z` is known only when the model runs.
    """
    nodes = [helper.make_node("Mul", ["x", "w"], ["y"]), helper.make_node("Add", ["x", "one"], ["z"])]
    state_steps: int | str = STEPS
    constants = {"w": weights.astype(np.float32), "one": np.ones(1, np.float32)}
    if open_state:
        nodes[1].output[0] = "all"
        nodes.append(helper.make_node("Compress", ["all", "every_step"], ["z"], axis=2))
        state_steps = "kept_steps"
        constants["every_step"] = np.ones(STEPS, bool)
    shape = ["n", CLASSES, STEPS]
    outputs = [builders.tensor("y", shape), builders.tensor("z", ["n", CLASSES, state_steps])]
    return str(io.save(builders.model(nodes, [builders.tensor("x", shape)], outputs, constants), folder))


@pytest.fixture
def payload(tmp_path: Path) -> dict[str, object]:
    """A request that compares a candidate which never sees the last class with its source."""
    rng = np.random.default_rng(0)
    path = np.where(rng.random((40, STEPS)) < 0.5, 0, rng.integers(0, CLASSES, (40, STEPS)))
    scores = (np.eye(CLASSES)[path] * 9 - 3).transpose(0, 2, 1).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=scores)
    blind = np.ones((CLASSES, 1))
    blind[-1] = -1
    return {
        "candidate": {"path": model(tmp_path / "candidate", blind)},
        "source": {"path": model(tmp_path / "source", np.ones((CLASSES, 1)))},
        "metrics": ["agreement", "top1_agreement", "kl", "cosine", "relative_l2"],
        "data": {"path": str(tmp_path / "data.npz")},
    }


def test_classes_are_compared_along_their_axis(payload: dict[str, object], tmp_path: Path) -> None:
    reply = worker.fidelity(payload)
    path = np.load(tmp_path / "data.npz")["x"].argmax(axis=1)
    assert reply["metrics"]["top1_agreement"]["value"] == pytest.approx(np.mean(path != CLASSES - 1))
    assert reply["details"]["kinds"] == {"y": "sequence", "z": "values"}
    share = reply["details"]["outputs"]["y"]["agreement"]["value"]
    assert np.mean(np.all(path != CLASSES - 1, axis=1)) < share < 1 - np.mean(path == CLASSES - 1)
    assert reply["metrics"]["agreement"]["value"] == pytest.approx((share + 1) / 2)


def test_a_state_whose_shape_the_exporter_left_open_is_no_decision(payload: dict[str, object], tmp_path: Path) -> None:
    source = {"path": model(tmp_path / "open", np.ones((CLASSES, 1)), open_state=True)}
    assert worker.fidelity({**payload, "source": source})["details"]["kinds"]["z"] == "values"


def test_the_source_agrees_with_itself_for_certain(payload: dict[str, object]) -> None:
    reply = worker.fidelity({**payload, "candidate": payload["source"]})
    assert reply["metrics"]["agreement"] == {"value": 1.0, "low": 1.0, "high": 1.0}


def test_random_numbers_are_the_same_for_source_and_candidate(payload: dict[str, object], tmp_path: Path) -> None:
    paths = []
    for name, nodes in {"one": ["RandomNormalLike"], "two": ["Relu", "RandomNormalLike"]}.items():
        steps = [helper.make_node(op, ["x"], [f"{op}-out"]) for op in nodes]
        steps.append(helper.make_node("Add", ["x", "RandomNormalLike-out"], ["y"]))
        values = [[builders.tensor(value, ["n", CLASSES, STEPS])] for value in "xy"]
        paths.append({"path": str(io.save(builders.model(steps, *values, {}), tmp_path / name))})
    reply = worker.fidelity({**payload, "source": paths[0], "candidate": paths[1], "metrics": ["relative_l2"]})
    assert reply["metrics"]["relative_l2"]["value"] == 0.0


def test_more_items_are_used_where_the_model_is_fast(payload: dict[str, object], tmp_path: Path) -> None:
    x = np.load(tmp_path / "data.npz")["x"]
    np.savez(tmp_path / "data.npz", x=np.tile(x, (10, 1, 1)))
    assert worker.fidelity(payload)["details"]["items"] >= 256
    assert worker.fidelity({**payload, "settings": {"samples": 50}})["details"]["items"] == 50


def test_a_fast_model_runs_all_items_between_two_numbers(
    payload: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 400 items all are compared: 256, the number below, would leave few to decide a limit."""
    unlimited = [(count, float("inf")) for count, _ in fidelity.MORE_ITEMS]
    monkeypatch.setattr(fidelity, "MORE_ITEMS", unlimited)
    x = np.random.default_rng(7).normal(size=(400, CLASSES, STEPS)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=x)
    assert worker.fidelity(payload)["details"]["items"] == 400


def test_fewer_items_are_used_where_the_model_is_slow(
    payload: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fidelity, "MORE_ITEMS", [(count, 0.0) for count, _ in fidelity.MORE_ITEMS])
    assert worker.fidelity(payload)["details"]["items"] == KINDS.fewest_compared


def test_the_time_of_the_source_counts_until_it_has_run_the_items(
    payload: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez(tmp_path / "data.npz", x=np.random.default_rng(7).normal(size=(40, CLASSES, STEPS)).astype(np.float32))
    seconds = itertools.cycle((0.0, 4.0))  # for the items of the first look
    monkeypatch.setattr(fidelity, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    monkeypatch.setattr(fidelity, "MORE_ITEMS", ((40, 60.0), (16, 60.0)))
    assert worker.fidelity(payload)["details"]["items"] == 16
    assert worker.fidelity({**payload, "candidate": payload["source"]})["details"]["items"] == 40
    assert worker.fidelity(payload)["details"]["items"] == 40


def test_a_number_far_above_that_of_the_data_gives_no_time(
    payload: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fidelity, "MORE_ITEMS", ((80, 1e9), (64, 0.0), (16, 1e9)))
    assert worker.fidelity(payload)["details"]["items"] == 16


def test_one_session_of_the_candidate_serves_all_items(
    payload: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    make_session = inference.make_session

    def note(path: str, *args: object, **options: object) -> object:
        opened.append(path)
        return make_session(path, *args, **options)

    monkeypatch.setattr(inference, "make_session", note)
    assert worker.fidelity(payload)["details"]["items"] > KINDS.fewest_compared
    assert opened.count(payload["candidate"]["path"]) == 1


def test_the_cache_of_a_decoder_decides_nothing_by_itself(tmp_path: Path) -> None:
    path = str(io.save(builders.decoder(), tmp_path / "decoder"))
    reply = worker.fidelity({"candidate": {"path": path}, "source": {"path": path}, "metrics": ["agreement"]})
    assert reply["details"]["kinds"] == {"logits": "classes", "present.0.key": "values", "present.0.value": "values"}
    assert reply["metrics"]["agreement"]["value"] == 1
