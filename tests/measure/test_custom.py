"""Metrics that a user script defines."""

from __future__ import annotations

import numpy as np
import pytest

from autoopt.errors import InputError
from autoopt.measure.intervals.items import paired_share
from autoopt.measure.quality import task
from autoopt.measure.quality.task import register_metric, registered, script_drop, script_estimate, script_values
from autoopt.metrics import Estimate, Metric


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
