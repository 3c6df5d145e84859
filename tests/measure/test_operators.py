"""The time of each operator of two models."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import mlp, write

from autoopt.errors import InputError
from autoopt.json_codec import from_json
from autoopt.measure.layerwise import MIN_INFERENCES, by_operator, operator_times
from autoopt.measure.request import MeasureRequest
from autoopt.model.model_file import ModelFile
from autoopt.results.model import OperatorTimes


def event(name: str, op_type: str, duration: int) -> dict[str, object]:
    return {"cat": "Node", "name": f"{name}_kernel_time", "dur": duration, "args": {"op_name": op_type}}


def test_a_node_counts_with_its_median_as_often_as_it_runs_without_the_first_inference() -> None:
    events = [event("a", "Conv", duration) for duration in (9000, 1000, 3000, 2000)]
    events += [event("b", "Conv", 500)] * 4
    events += [event("in a loop", "Add", duration) for duration in (800, 900, 100, 100, 100, 100, 100, 100)]
    events.append({"cat": "Session", "name": "model_run", "dur": 99999})
    assert by_operator(events, inferences=4) == {"Conv": 2.5, "Add": 0.2}


def test_both_models_are_profiled_with_their_own_session_options(tmp_path: Path) -> None:
    model = str(write(mlp(), tmp_path))
    unoptimized = ModelFile(model, {"graph_optimization_level": "disable"})
    request = MeasureRequest(candidate=ModelFile(model), source=unoptimized)
    times = from_json(OperatorTimes, operator_times(request.to_json()))
    rows = {row.op_type: row for row in times.rows}
    assert times.inferences >= MIN_INFERENCES
    assert all((row.source or 0) >= 0 and (row.candidate or 0) >= 0 for row in times.rows)
    assert any(row.source is None or row.candidate is None for row in times.rows)
    assert set(rows) & {"Gemm", "FusedGemm", "MatMul"}
    assert [abs(row.change) for row in times.rows] == sorted((abs(row.change) for row in times.rows), reverse=True)


def test_one_model_is_not_enough(tmp_path: Path) -> None:
    request = MeasureRequest(candidate=ModelFile(str(write(mlp(), tmp_path))))
    with pytest.raises(InputError, match="two models are needed"):
        operator_times(request.to_json())
