"""Times of operators."""

from __future__ import annotations

import pytest

from autoopt.json_codec import from_json, to_json
from autoopt.results.operator_times import OperatorTime, OperatorTimes


@pytest.mark.parametrize(
    ("source", "candidate", "change"), [(2.0, 0.5, -1.5), (None, 0.5, 0.5), (2.0, None, -2.0), (None, None, 0.0)]
)
def test_a_type_that_a_model_lacks_takes_no_time(source: float | None, candidate: float | None, change: float) -> None:
    time = OperatorTime("Conv", source, candidate)
    assert time.change == change
    assert from_json(OperatorTimes, to_json(OperatorTimes(7, (time,)))).rows == (time,)
