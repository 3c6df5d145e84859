"""What happens within a worker: replies, exceptions, prints."""

from __future__ import annotations

import pytest

from autoopt.outcome import Outcome
from autoopt.workers import WorkerPool

MIB = 1 << 20


def test_value_comes_back(pool: WorkerPool) -> None:
    payload = {"text": "Grüße\n\x00", "number": 1.5, "deep": [{"none": None}]}
    result = pool.call("jobs:echo", payload)
    assert (result.outcome, result.value, result.message) == (Outcome.OK, payload, "")


def test_large_payload_and_reply_pass_the_pipe(pool: WorkerPool) -> None:
    payload = {"text": "x" * (5 * MIB)}
    assert pool.call("jobs:echo", payload).value == payload


def test_prints_do_not_disturb_the_reply(pool: WorkerPool, capfd: pytest.CaptureFixture[str]) -> None:
    assert pool.call("jobs:noise", {}).value == {"stdin": ""}
    assert pool.call("jobs:echo", {"still": "here"}).value == {"still": "here"}
    assert capfd.readouterr() == ("", "")


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


def test_recursion_fails_and_tells_where(pool: WorkerPool) -> None:
    result = pool.call("jobs:recurse", {})
    assert result.outcome is Outcome.FAILED
    assert "in recurse" in result.details
