"""The fidelity meter on real models."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace

import builders
import numpy as np
import pytest
from onnx import helper

from autoopt.measure import inference, worker
from autoopt.measure.quality import fidelity
from autoopt.model import io
from autoopt.tuning import KINDS

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
