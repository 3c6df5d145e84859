"""The settings of a measurement: defaults, types and ranges."""

from __future__ import annotations

from typing import Any

import pytest

from autoopt.errors import InputError
from autoopt.measure.settings import MeasurementSettings


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"seconds": "long"}, "seconds: expected a number"),
        ({"replicas": 2.5}, "replicas: expected int"),
        ({"rounds": True}, "rounds: expected int"),
        ({"fixed": 1}, "fixed: expected bool"),
        ({"task_output": 1.5}, "task_output"),
        ({"throughput": 3}, "throughput: expected a list"),
        ({"profiles": ["short"]}, r"profiles\.0: expected an object"),
        ({"state": {"out": 1}}, r"state\.out: expected str"),
        ({"constraints": [{"metric": "f1", "min": "x"}]}, r"constraints\.0\.min: expected a number"),
    ],
)
def test_a_value_of_another_type_is_named(values: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        MeasurementSettings.parse(values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"seconds": 0}, "'seconds' must be above 0, not 0"),
        ({"margin": -1}, "'margin' must be above 0, not -1"),
        ({"concurrency": 0}, "'concurrency' must be at least 1"),
        ({"throughput": [{"batch_size": 0}]}, "must be at least 1"),
        ({"rounds": -1}, "'rounds' must be at least 0"),
        ({"quiet_seconds": -1}, "'quiet_seconds' must be at least 0"),
        ({"batch_size": -1}, "'batch_size' must be at least 0"),
        ({"affinity": [0, -1]}, "'affinity' must be numbers of cores"),
        ({"dimensions": {"batch": 0}}, "'dimensions': 'batch' must be from 1 to 2"),
        ({"shapes": {"x": [1, -3]}}, r"'shapes': 'x' must have sizes from 1"),
        ({"batch_size": 10**18}, "'batch_size' must be at most 1000000"),
        ({"shapes": {"x": [10**9, 10**9]}}, "less than 2\\^40 elements"),
        ({"image_size": [10**6, 10**6]}, "of at most 65535 pixels"),
        ({"ranges": {"x": [1, 0]}}, r"'ranges': 'x' must be \[low, high\]"),
        ({"ranges": {"x": [1]}}, r"must be \[low, high\]"),
        ({"ranges": {"x": [float("nan"), 1]}}, r"must be \[low, high\]"),
    ],
)
def test_numbers_that_mean_nothing_are_refused(values: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        MeasurementSettings.parse(values)
    MeasurementSettings.parse({"shapes": {"x": []}, "ranges": {"x": [0, 0]}, "affinity": [0]})
