"""How a call ends that does not come back: deaths, time, memory, killer models."""

from __future__ import annotations

import os
from pathlib import Path

import builders
import pytest
from call_clock import CallClock
from children import HANG_SECONDS

from autoopt.errors import ErrorRecord, InputError, SystemFailure
from autoopt.outcome import Outcome
from autoopt.workers import CallResult, WorkerPool
from autoopt.workers.process import MachineLoad

MIB = 1 << 20


@pytest.mark.parametrize("name", ["SIGABRT", "SIGSEGV", "SIGKILL", "SIGTERM", "SIGFPE"])
def test_a_death_by_signal_is_a_crash_with_the_signals_name(pool: WorkerPool, name: str) -> None:
    result = pool.call("jobs:signalled", {"signal": name})
    assert (result.outcome, result.died) == (Outcome.CRASHED, True)
    assert result.message == f"the worker died: {name}: last words"
    assert pool.call("jobs:echo", {"next": 1}).value == {"next": 1}


@pytest.mark.parametrize("code", [0, 1, 77])
def test_leaving_without_a_reply_is_a_crash(pool: WorkerPool, code: int) -> None:
    result = pool.call("jobs:exit_now", {"code": code})
    assert (result.outcome, result.message) == (Outcome.CRASHED, f"the worker died: exit code {code}")


@pytest.mark.parametrize("text", ["garbage\n", "7\n", "[]\n", '{"log": 1}\n', "\xff\n", "no end"])
def test_writing_into_foreign_descriptors_fails_only_the_call(pool: WorkerPool, text: str) -> None:
    result = pool.call("jobs:write_everywhere", {"text": text})
    assert result.outcome is Outcome.CRASHED
    assert "something wrote into the worker's descriptors" in result.message
    assert pool.call("jobs:echo", {"next": 1}).value == {"next": 1}


def test_memory_limit_in_python(pool: WorkerPool) -> None:
    result = pool.call("jobs:allocate", {"mib": 2000}, memory=500 * MIB)
    assert (result.outcome, result.message) == (Outcome.OUT_OF_MEMORY, "MemoryError")
    assert pool.call("jobs:allocate", {"mib": 300}, memory=500 * MIB).value == {"mib": 300}


def test_memory_exceeds_its_limit_by_less_than_a_tenth(new_pool: WorkerPool) -> None:
    filled = new_pool.call("jobs:hoard", {"piece": MIB}, memory=300 * MIB).value
    assert filled is not None
    assert 250 * MIB < filled["bytes"] < 330 * MIB


def test_shared_memory_counts_too(pool: WorkerPool) -> None:
    result = pool.call("jobs:allocate_shared", {"mib": 400}, memory=200 * MIB)
    assert (result.outcome, result.died) == (Outcome.OUT_OF_MEMORY, False)
    assert result.message == "exceeded its memory limit of 200 MiB"


def test_an_abort_after_a_failed_allocation_is_out_of_memory(pool: WorkerPool) -> None:
    result = pool.call("jobs:allocate_in_native_code", {}, memory=200 * MIB)
    assert result.outcome is Outcome.OUT_OF_MEMORY
    assert result.message.startswith("out of memory: terminate called")


@pytest.mark.parametrize(("mib", "outcome"), [(280, Outcome.OUT_OF_MEMORY), (50, Outcome.CRASHED)])
def test_a_death_close_to_the_limit_is_out_of_memory(new_pool: WorkerPool, mib: int, outcome: Outcome) -> None:
    result = new_pool.call("jobs:die_full", {"mib": mib}, memory=300 * MIB)
    assert result.outcome is outcome
    assert ("close to its memory limit of 300 MiB: SIGSEGV" in result.message) == (mib == 280)


def test_reserved_address_space_is_not_memory(pool: WorkerPool) -> None:
    assert pool.call("jobs:reserve", {"mib": 4000}, memory=200 * MIB).outcome is Outcome.OK


def test_ordinary_inference_passes_a_tight_limit(pool: WorkerPool, tmp_path: Path) -> None:
    path = builders.write(builders.mlp(), tmp_path)
    assert pool.call("jobs:run_model", {"path": str(path)}, memory=400 * MIB).value == {"outputs": 1}


@pytest.mark.parametrize(
    ("killer", "job", "outcome"),
    [
        ("split_abort", "full_check", Outcome.CRASHED),
        ("split_abort", "run_model", Outcome.CRASHED),
        ("regex_segfault", "infer_shapes", Outcome.CRASHED),
        ("endless_loop", "run_model", Outcome.TIMEOUT),
        ("nested_functions", "full_check", Outcome.TIMEOUT),
        ("nested_functions", "run_model", Outcome.TIMEOUT),
        ("memory_bomb", "infer_shapes", Outcome.OUT_OF_MEMORY),
        ("memory_bomb", "run_model", Outcome.OUT_OF_MEMORY),
    ],
)
def test_killer_models(pool: WorkerPool, tmp_path: Path, killer: str, job: str, outcome: Outcome) -> None:
    path = builders.write(builders.KILLERS[killer](), tmp_path)
    limit = 1.0 if outcome is Outcome.TIMEOUT else HANG_SECONDS
    payload = {"path": str(path), "data_prop": killer == "memory_bomb"}
    result = pool.call(f"jobs:{job}", payload, timeout=limit, memory=300 * MIB)
    assert result.outcome is outcome
    assert result.message


BAD_SHAPE = CallResult(Outcome.FAILED, message="x: bad shape", error=ErrorRecord("InputError", "bad shape", where="x"))


@pytest.mark.parametrize(
    ("result", "where", "kind", "text"),
    [
        (
            BAD_SHAPE,
            "m.onnx",
            InputError,
            "m.onnx: x: bad shape",
        ),
        (BAD_SHAPE, "x", InputError, "x: bad shape"),
        (BAD_SHAPE, "", InputError, "x: bad shape"),
        (CallResult(Outcome.CRASHED, message="the worker died"), "m.onnx", InputError, "m.onnx: the worker died"),
        (CallResult(Outcome.TIMEOUT), "", InputError, "the worker ended: timeout"),
        (
            CallResult(Outcome.FAILED, message="disk full", error=ErrorRecord("SystemFailure", "disk full")),
            "m.onnx",
            SystemFailure,
            "m.onnx: disk full",
        ),
        (
            CallResult(Outcome.FAILED, message="KeyError: 1", error=ErrorRecord("KeyError", "1")),
            "m.onnx",
            InputError,
            "m.onnx: KeyError: 1",
        ),
    ],
)
def test_the_exception_of_a_failed_call_has_the_workers_class_and_names_the_place_once(
    result: CallResult, where: str, kind: type[Exception], text: str
) -> None:
    error = result.to_exception(where)
    assert (type(error), str(error)) == (kind, text)


def test_the_error_of_a_worker_arrives_as_fields(pool: WorkerPool) -> None:
    error = pool.call("jobs:wrong_input", {}).error
    assert (error.type, error.what, error.where) == ("InputError", "too big", "model.onnx")
    assert error.remedy == "make it smaller"


@pytest.mark.parametrize("end", ["dies", "hangs"])
def test_the_temporary_files_of_a_killed_call_are_removed(
    jobs: dict[str, str], call_clock: CallClock, tmp_path: Path, end: str
) -> None:
    place = tmp_path / "place"
    with WorkerPool(size=1, env=jobs) as pool:
        pool.call("jobs:echo", {})
        call_clock.is_over = lambda: end == "hangs" and place.exists() and place.read_text() != ""
        outcome = pool.call("jobs:litter", {"place": str(place), "end": end}, timeout=1.0).outcome
        assert outcome is (Outcome.CRASHED if end == "dies" else Outcome.TIMEOUT)
        assert not Path(place.read_text()).exists()


@pytest.mark.parametrize(
    ("idle", "own", "disturbed"),
    [(5.0, 10.0, True), (5.0, 90.0, False), (50.0, 10.0, False)],
    ids=["full because of others", "full because of the call", "a core was free"],
)
def test_a_call_is_disturbed_on_a_machine_that_others_fill(idle: float, own: float, disturbed: bool) -> None:
    before = MachineLoad(10.0, 100.0, 1.0)
    after = MachineLoad(10.0 + idle, 200.0, 1.0 + own)
    assert after.disturbed_since(before) is disturbed
    assert not before.disturbed_since(before), "a machine that reports nothing"


def test_the_load_of_this_machine_is_read() -> None:
    load = MachineLoad.now(os.getpid())
    assert 0 < load.process < load.total
    assert 0 <= load.idle <= load.total
