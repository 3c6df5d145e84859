"""Task metrics against their definitions."""

from __future__ import annotations

import numpy as np
import pytest

from autoopt.errors import InputError
from autoopt.measure.intervals.items import paired_share
from autoopt.measure.quality import task
from autoopt.measure.quality.task import (
    drop,
    measure,
    register_metric,
    registered,
    script_drop,
    script_estimate,
    script_values,
)
from autoopt.metrics import Estimate, Metric

RNG = np.random.default_rng(0)


def scores_for(predicted: np.ndarray, count: int) -> np.ndarray:
    scores = RNG.uniform(0, 0.5, (len(predicted), count)).astype(np.float32)
    scores[np.arange(len(predicted)), predicted] = 1.0
    return scores


LABELS = np.array([0, 1, 2, 3] * 25)
HALF_WRONG = np.where(np.arange(100) < 10, (LABELS + 1) % 4, LABELS)


def test_auc_finds_the_scores_also_behind_a_label_output():
    probabilities = np.array([[0.9, 0.1], [0.6, 0.4], [0.65, 0.35], [0.2, 0.8]], np.float32)
    labels = np.array([0, 0, 1, 1])
    assert measure("auc", [np.array([0, 0, 0, 1]), probabilities], labels).value == pytest.approx(0.75)
    with pytest.raises(InputError, match="needs scores"):
        measure("auc", [np.array([0, 0, 0, 1])], labels)


@pytest.mark.parametrize("name", ["accuracy", "f1", "top2_accuracy", "auc"])
def test_a_drop_is_positive_when_the_candidate_is_worse(name):
    right, wrong = scores_for(LABELS, 4), scores_for(HALF_WRONG, 4)
    if name == "top2_accuracy":
        wrong = np.zeros_like(wrong)
        wrong[:, 3] = 1.0
        wrong[:, 2] = 0.5
    down = drop(name, [wrong], [right], LABELS)
    up = drop(name, [right], [wrong], LABELS)
    assert down.low > 0
    assert up.high < 0


def test_paired_drops_are_narrower_than_separate_intervals():
    candidate = scores_for(np.where(np.arange(100) == 0, (LABELS + 1) % 4, HALF_WRONG), 4)
    paired = drop("accuracy", [candidate], [scores_for(HALF_WRONG, 4)], LABELS)
    alone = measure("accuracy", [candidate], LABELS)
    assert paired.high - paired.low < alone.high - alone.low


def test_answers_that_agree_on_few_items_may_differ_on_the_next() -> None:
    labels = np.arange(54) % 3
    source = np.eye(3)[labels]
    candidate = source * 0.9
    for metric in ("accuracy", "f1", "top2_accuracy"):
        change = drop(metric, [candidate], [source], labels)
        assert change == paired_share(0, 0, 54)
        assert change.high == pytest.approx(0.066, abs=1e-3)


def test_equal_errors_of_numbers_are_certain() -> None:
    labels = np.arange(5.0)
    assert drop("mse", [labels + 1], [labels - 1], labels) == Estimate.exact(0.0)


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task, "_registered", {})


def from_script(source: str, file: str = "one.py") -> None:
    exec(compile(source, file, "exec"), {"register_metric": register_metric})


def test_a_registered_function_is_a_metric() -> None:
    @register_metric("margin", unit="1", direction="minimize")
    def margin(outputs, labels):
        """Distance of the two highest scores.

        More words.
        """

    assert registered() == {
        "margin": Metric("margin", "1", "minimize", "custom", "Distance of the two highest scores.")
    }
    assert margin.metric == registered()["margin"]


def test_a_metric_without_words_is_called_by_its_name() -> None:
    register_metric("mine")(lambda outputs, labels: 1)
    assert registered()["mine"].summary == "mine"
    register_metric("other", summary="said here")(lambda outputs, labels: 1)
    assert registered()["other"].summary == "said here"


def test_reading_a_script_again_replaces_its_metrics() -> None:
    for value in (1, 2):
        from_script(f"@register_metric('mine')\ndef mine(outputs, labels):\n    return {value}\n")
    assert script_values("mine", [], None) == 2


@pytest.mark.parametrize(("name", "file"), [("accuracy", "one.py"), ("mine", "two.py")])
def test_a_name_belongs_to_one_metric(name: str, file: str) -> None:
    from_script("@register_metric('mine')\ndef mine(outputs, labels):\n    return 1\n")
    with pytest.raises(InputError, match=f"metric '{name}' is registered twice"):
        from_script(f"@register_metric('{name}')\ndef mine(outputs, labels):\n    return 1\n", file)


def test_the_function_gets_outputs_and_labels() -> None:
    register_metric("sums")(lambda outputs, labels: outputs[0].sum(1) - labels)
    assert script_values("sums", [np.ones((2, 3))], np.array([1, 2])).tolist() == [2, 1]


@pytest.mark.parametrize("result", [np.ones((2, 2)), [], "many", {}])
def test_anything_but_numbers_is_the_users_mistake(result: object) -> None:
    register_metric("wrong")(lambda outputs, labels: result)
    with pytest.raises(InputError, match="metric 'wrong'"):
        script_values("wrong", [], None)


def test_an_unknown_metric_names_the_nearest() -> None:
    register_metric("margin")(lambda outputs, labels: 1)
    with pytest.raises(InputError, match="did you mean 'margin'"):
        script_values("margn", [], None)


def test_one_number_is_exact_and_several_are_a_mean() -> None:
    assert script_estimate(np.array(3.0)) == script_estimate(np.array([3.0])) == Estimate.exact(3.0)
    several = script_estimate(np.array([1.0, 2.0, 3.0]))
    assert several.low < several.value == 2.0 < several.high


def test_a_drop_is_towards_worse() -> None:
    better, worse = np.array([1.0, 1.0]), np.array([0.5, 0.5])
    for direction, expected in (("maximize", 0.5), ("minimize", -0.5)):
        change = script_drop(direction, worse, better)  # type: ignore[arg-type]
        assert change == Estimate.exact(expected)


def test_right_and_wrong_answers_have_the_interval_of_a_share() -> None:
    same = np.array([1.0, 0.0, 1.0, 1.0])
    assert script_drop("maximize", same, same) == paired_share(0, 0, 4)
    lost = script_drop("maximize", np.array([0.0, 0.0, 1.0, 1.0]), same)
    assert lost == paired_share(1, 0, 4)
    assert script_drop("minimize", np.array([0.0, 0.0, 1.0, 1.0]), same) == paired_share(0, 1, 4)


@pytest.mark.parametrize(
    ("candidate", "source"),
    [(np.array(1.0), np.array(1.0)), (np.ones(2), np.ones(3)), (np.array([np.nan, 1.0]), np.ones(2))],
)
def test_values_without_pairs_have_no_drop(candidate: np.ndarray, source: np.ndarray) -> None:
    assert script_drop("maximize", candidate, source) is None


def test_an_exception_in_the_users_code_names_its_line() -> None:
    from_script("@register_metric('cost')\ndef cost(outputs, labels):\n    x = 1\n    return outputs[5]\n", "bad.py")
    with pytest.raises(InputError) as refused:
        script_values("cost", [np.ones(3)], None)
    assert str(refused.value) == "bad.py:4: metric 'cost' raised IndexError: list index out of range"


def test_nan_is_the_users_mistake() -> None:
    from_script("\n\n@register_metric('cost')\ndef cost(outputs, labels):\n    return [1.0, float('nan')]\n", "bad.py")
    with pytest.raises(InputError) as refused:
        script_values("cost", [np.ones(2)], None)
    assert str(refused.value) == "bad.py:3: metric 'cost' returned NaN"
