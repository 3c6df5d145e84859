"""Observers: every hook has a silent default, reaches each member of a group, and has an event for plain functions."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from autoopt.metrics import Estimate
from autoopt.observer import SILENT, CallbackObserver, Observer, ObserverGroup
from autoopt.outcome import Outcome
from autoopt.results import TrialResult

RESULT = TrialResult("a", {}, Outcome.OK)
CALLS: dict[str, tuple[Any, ...]] = {
    "on_note": ("hello",),
    "on_phase": ("model a",),
    "on_baseline": ({"size": Estimate.exact(1.0)},),
    "on_trial_start": (1, "a -> b", {"a": {"x": 1}}),
    "on_trial_end": (1, "a -> b", {"a": {"x": 1}}, RESULT, 0.5),
    "on_pass_start": (["a", "b"],),
    "on_pass_end": ("a", Outcome.OK, 0.1, ""),
    "on_measure_start": ("latency",),
    "on_measure_end": ("latency", Outcome.OK, 0.1),
    "on_sweep_start": (["a", "b"],),
    "on_model_start": ("a",),
    "on_model_end": ({"name": "a"},),
}


class Recorder(Observer):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def on_note(self, text: str) -> None:
        self.notes.append(text)


def test_every_hook_is_listed_here() -> None:
    assert {name for name in vars(Observer) if name.startswith("on_")} == set(CALLS)


@pytest.mark.parametrize("hook", CALLS)
def test_the_silent_observer_accepts_every_hook(hook: str) -> None:
    assert getattr(SILENT, hook)(*CALLS[hook]) is None


@pytest.mark.parametrize("hook", CALLS)
def test_a_group_passes_every_hook_on_in_order(hook: str) -> None:
    events: list[tuple[str, str]] = []
    members = [CallbackObserver(lambda event, who=who, **_: events.append((who, event))) for who in "ab"]
    getattr(ObserverGroup(*members), hook)(*CALLS[hook])
    assert [who for who, _ in events] == ["a", "b"]
    assert events[0][1] == events[1][1]


@pytest.mark.parametrize("hook", CALLS)
def test_a_plain_function_receives_every_value_of_a_hook(hook: str) -> None:
    received: list[dict[str, Any]] = []
    getattr(CallbackObserver(lambda event, **values: received.append(values)), hook)(*CALLS[hook])
    assert len(received[0]) == len(inspect.signature(getattr(Observer, hook)).parameters) - 1


def test_events_for_plain_functions_keep_their_names() -> None:
    events: list[str] = []
    observer = CallbackObserver(lambda event, **_: events.append(event))
    for hook, values in CALLS.items():
        getattr(observer, hook)(*values)
    assert events == [
        "note", "phase", "baseline", "trial_begins", "trial_ends", "pass_begins", "pass_ends",
        "measure_begins", "measure_ends", "models", "model_begins", "model_ends",
    ]  # fmt: skip


def test_a_member_of_a_group_may_implement_one_hook_alone() -> None:
    recorder = Recorder()
    group = ObserverGroup(SILENT, recorder)
    group.on_phase("model a")
    group.on_note("hello")
    assert recorder.notes == ["hello"]
