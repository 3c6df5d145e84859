"""The load of other processes, and waiting for a quiet machine."""

from __future__ import annotations

import json
import os

import pytest

from autoopt.measure.latency import busy
from autoopt.measure.latency.busy import Load, QuietWait, Reading, core_count, describe, thread_count
from autoopt.measure.request import MeasureRequest
from autoopt.model.model_file import ModelFile
from autoopt.target import Target
from autoopt.tuning import TIMING


def test_the_load_of_others_is_all_work_less_our_own() -> None:
    load = Load.between(Reading(10.0, 100.0, 5.0, runnable=3), Reading(12.0, 105.0, 6.0, runnable=6))
    assert load.cores == pytest.approx(2.0)
    assert load.runnable == pytest.approx(3.5)
    assert load.busy


def test_a_load_that_cannot_be_measured_is_unknown() -> None:
    unknown = Reading(0.0, -1.0, 0.0)
    assert Load.between(unknown, Reading(9.0, 3.0, 0.0)).cores is None
    assert Load.between(Reading(0.0, 0.0, 0.0), Reading(0.01, 0.0, 0.0)).cores is None


def test_work_on_other_cores_shares_only_caches() -> None:
    before, after = Reading(0.0, 0.0, 0.0), Reading(1.0, 0.9, 0.9, runnable=3, elsewhere=1.0)
    load = Load.between(before, after)
    assert (load.cores, load.elsewhere, load.busy) == (pytest.approx(0.0), pytest.approx(1.0), False)
    assert 0 < load.contention <= Load(1.0, runnable=load.runnable).contention


def test_only_a_busy_machine_has_contention() -> None:
    assert Load(TIMING.busy_load, runnable=9.0).contention == 0
    assert Load(None, runnable=9.0).contention == 0
    assert 0 < Load(2.0, runnable=2.0).contention < Load(2.0, runnable=9.0).contention


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> list[float | None]:
    """Loads that the next samples find, on a clock that moves a second with each reading."""
    loads: list[float | None] = []
    clock = iter(range(1000))
    monkeypatch.setattr(busy.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(busy.time, "monotonic", lambda: float(next(clock)))
    monkeypatch.setattr(Load, "between", lambda before, after: Load(loads.pop(0)))
    return loads


def test_waiting_ends_when_the_machine_is_quiet(load: list[float | None]) -> None:
    load += [3.0, 1.0, TIMING.busy_load, 9.0]
    assert QuietWait().wait(1000.0)["quiet"] is True
    assert load == [9.0]


def test_waiting_ends_at_its_limit(load: list[float | None]) -> None:
    load += [3.0] * 50
    result = QuietWait().wait(6.0)
    assert result["quiet"] is False
    assert len(load) > 40


def test_waits_become_shorter_on_a_machine_that_is_always_busy(load: list[float | None]) -> None:
    load += [3.0] * 50
    wait = QuietWait()
    seconds = [wait.wait(16.0)["waited"] for _ in range(5)]
    assert seconds == sorted(seconds, reverse=True)
    assert seconds[4] < seconds[0] / 4
    load[:] = [TIMING.busy_load]
    assert wait.wait(16.0)["quiet"] is True
    assert wait.in_vain == 0


def test_a_machine_that_was_quiet_a_moment_ago_is_not_looked_at_again(load: list[float | None]) -> None:
    wait = QuietWait()
    wait.note(Load(0.0))
    assert wait.wait(6.0) == {"waited": 0.0, "quiet": True}
    wait.note(Load(3.0))
    load += [3.0, 0.0]
    assert wait.wait(6.0)["waited"] > 0
    assert load == []
    wait.note(Load(None))
    load += [0.0]
    assert wait.wait(6.0)["waited"] > 0


def test_a_machine_that_stayed_busy_after_a_wait_in_vain_is_not_looked_at_again(load: list[float | None]) -> None:
    wait = QuietWait()
    load += [3.0] * 50
    wait.wait(6.0)
    wait.note(Load(3.0))
    assert wait.wait(6.0) == {"waited": 0.0, "quiet": False}
    wait.note(Load(0.0))
    assert wait.wait(6.0) == {"waited": 0.0, "quiet": True}


def test_a_description_is_json_with_the_cores() -> None:
    description = describe()
    assert json.loads(json.dumps(description)) == description
    assert description["cores"] == os.cpu_count()


def test_threads_are_those_of_the_model_then_of_the_target_then_the_cores() -> None:
    model = ModelFile("a.onnx", {"intra_op_num_threads": 3})
    request = MeasureRequest(model, ModelFile("b.onnx"), target=Target(threads=2))
    assert (thread_count(request, model), thread_count(request, request.source)) == (3, 2)
    assert thread_count(MeasureRequest(model, target=Target(threads=0)), None) == core_count()
