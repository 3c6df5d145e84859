"""The lifecycle of a pass: each phase exactly once, and the outcomes of all three combine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autoopt.outcome import Outcome
from autoopt.passes.base import Pass, Refused, Retry
from autoopt.passes.base.lifecycle import run_lifecycle


def recording(**behaviour: Any) -> tuple[Pass, list[str]]:
    """A pass whose phases do what is asked: raise an exception, or return the value."""
    calls: list[str] = []

    def phase(name: str) -> Any:
        calls.append(name)
        wanted = behaviour.get(name)
        if isinstance(wanted, BaseException):
            raise wanted
        return wanted

    class Recording(Pass):
        def initialize(self) -> Any:
            return phase("initialize")

        def run(self, model: Any) -> Any:
            return phase("run")

        def finalize(self) -> Any:
            return phase("finalize")

    return Recording(), calls


MODEL = Path("model.onnx")
ALL = ["initialize", "run", "finalize"]
CASES: dict[str, tuple[dict[str, Any], Outcome, list[str]]] = {
    "nothing to do": ({}, Outcome.UNCHANGED, ALL),
    "a model": ({"run": MODEL}, Outcome.OK, ALL),
    "no model": ({"run": "model"}, Outcome.FAILED, ALL),
    "run refuses": ({"run": Refused("no")}, Outcome.REFUSED, ALL),
    "run fails": ({"run": ValueError("bad")}, Outcome.FAILED, ALL),
    "run has no memory": ({"run": MemoryError()}, Outcome.OUT_OF_MEMORY, ALL),
    "native code has no memory": ({"run": RuntimeError("std::bad_alloc")}, Outcome.OUT_OF_MEMORY, ALL),
    "a library is missing": ({"run": ModuleNotFoundError("x", name="torch")}, Outcome.REFUSED, ALL),
    "run asks again": ({"run": Retry("r", {})}, Outcome.RETRY, ALL),
    "initialize fails": ({"initialize": ValueError("bad"), "run": MODEL}, Outcome.FAILED, ["initialize", "finalize"]),
    "initialize asks again": ({"initialize": Retry("r", {}), "run": "m"}, Outcome.RETRY, ["initialize", "finalize"]),
    "finalize fails": ({"run": MODEL, "finalize": ValueError("bad")}, Outcome.FAILED, ALL),
    "finalize asks again": ({"run": MODEL, "finalize": Retry("r", {})}, Outcome.RETRY, ALL),
    "failure is stronger than retry": ({"run": Retry("r", {}), "finalize": ValueError("b")}, Outcome.FAILED, ALL),
    "failure is stronger than refusal": ({"run": Refused("n"), "finalize": ValueError("b")}, Outcome.FAILED, ALL),
    "what finalize returns is no model": ({"finalize": "junk"}, Outcome.UNCHANGED, ALL),
}


@pytest.mark.parametrize("case", CASES)
def test_outcomes_combine_and_phases_run_once(case: str) -> None:
    behaviour, outcome, called = CASES[case]
    pass_, calls = recording(**behaviour)
    ended = run_lifecycle(pass_, object())
    assert ended.outcome is outcome
    assert calls == called
    assert (ended.model == MODEL) == (outcome is Outcome.OK)


def test_messages_are_one_line() -> None:
    pass_, _ = recording(run="model")
    assert run_lifecycle(pass_, object()).message == "returned str, not a model, a path or None"
    pass_, _ = recording(run=ValueError("a\nb\x1b[31m"))
    assert run_lifecycle(pass_, object()).message == "ValueError: a b\\x1b[31m"
    pass_, _ = recording(run=Refused("says why"))
    assert run_lifecycle(pass_, object()).message == "says why"


def test_a_pass_without_run_raises() -> None:
    class Empty(Pass):
        pass

    assert "Empty does not define run" in run_lifecycle(Empty(), object()).message


def test_a_path_in_place_of_a_model_is_said() -> None:
    pass_, calls = recording()
    with pytest.raises(TypeError, match=r"Recording takes a ModelProto, not str; read a file with onnx.load\(\)"):
        pass_("model.onnx")  # type: ignore[arg-type]
    assert not calls
