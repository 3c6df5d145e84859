"""The worker process: replies, exceptions, output, and what it needs to run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from children import HANG_SECONDS

from autoopt.outcome import Outcome
from autoopt.workers import WorkerPool, child

MIB = 1 << 20


def test_a_value_comes_back(pool: WorkerPool) -> None:
    payload = {"text": "Grüße\n\x00", "number": 1.5, "deep": [{"none": None}]}
    result = pool.call("jobs:echo", payload)
    assert (result.outcome, result.value, result.message) == (Outcome.OK, payload, "")


def test_a_large_payload_and_a_large_reply_pass_the_pipe(pool: WorkerPool) -> None:
    payload = {"text": "x" * (5 * MIB)}
    assert pool.call("jobs:echo", payload).value == payload


def test_prints_do_not_disturb_the_reply(pool: WorkerPool, capfd: pytest.CaptureFixture[str]) -> None:
    assert pool.call("jobs:noise", {}).value == {"stdin": ""}
    assert pool.call("jobs:echo", {"still": "here"}).value == {"still": "here"}
    assert capfd.readouterr() == ("", "")


def test_a_forked_copy_of_the_worker_does_not_answer(pool: WorkerPool) -> None:
    for number in range(3):
        assert pool.call("jobs:fork_and_return", {"n": number}).value == {"n": number, "in_fork": False}
        assert pool.call("jobs:echo", {"n": number}).value == {"n": number}


@pytest.mark.parametrize(
    ("job", "payload", "outcome", "message"),
    [
        ("fail", {"text": "bad\nthing \x1b[31m"}, Outcome.FAILED, "ValueError: bad thing \\x1b[31m"),
        ("fail", {"text": ""}, Outcome.FAILED, "ValueError"),
        ("fail", {"text": "std::bad_alloc"}, Outcome.OUT_OF_MEMORY, "ValueError: std::bad_alloc"),
        ("unwilling", {}, Outcome.REFUSED, "not this model"),
        ("wrong_input", {}, Outcome.FAILED, "model.onnx: too big; make it smaller"),
        ("leave", {}, Outcome.FAILED, "SystemExit: 3"),
        ("nowhere", {}, Outcome.FAILED, "AttributeError: module 'jobs' has no attribute 'nowhere'"),
        ("not_json", {}, Outcome.FAILED, "TypeError: Object of type object is not JSON serializable"),
    ],
)
def test_exceptions_are_outcomes(
    pool: WorkerPool, job: str, payload: dict[str, str], outcome: str, message: str
) -> None:
    result = pool.call(f"jobs:{job}", payload)
    assert (result.outcome, result.message, result.value, result.died) == (outcome, message, None, False)


def test_the_details_of_a_failure_name_the_place(pool: WorkerPool) -> None:
    result = pool.call("jobs:recurse", {})
    assert result.outcome is Outcome.FAILED
    assert "in recurse" in result.details


def test_a_worker_needs_only_the_standard_library(tmp_path: Path) -> None:
    """No site-packages, no environment: as in an interpreter that has nothing but numpy and onnxruntime."""
    command = [sys.executable, "-S", "-I", child.__file__, "json:dumps"]
    done = subprocess.run(
        command, input='{"a": 1}', capture_output=True, text=True, timeout=HANG_SECONDS, cwd=tmp_path, env={}
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(json.loads(done.stdout)) == {"a": 1}


def test_a_single_call_ends_with_the_traceback_of_its_exception(tmp_path: Path) -> None:
    command = [sys.executable, child.__file__, "json:nothing"]
    done = subprocess.run(command, input="{}", capture_output=True, text=True, timeout=HANG_SECONDS, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "AttributeError" in done.stderr
