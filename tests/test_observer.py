"""Observers: every hook has a silent default, reaches each member of a group, and has an event for plain functions."""

from __future__ import annotations

from typing import Any

import pytest

from autoopt.metrics import Constraint, Estimate, Objective
from autoopt.observer import SILENT, CallbackObserver, Observer, ObserverGroup
from autoopt.outcome import Outcome
from autoopt.results import SweepEntry, Trial

TRIAL = Trial("run", 1, "c", {"a": {"x": 1}}, "a -> b", outcome=Outcome.OK)
CALLS: dict[str, tuple[Any, ...]] = {
    "on_note": ("hello",),
    "on_phase": ("model a",),
    "on_baseline": ({"size": Estimate.exact(1.0)},),
    "on_trial_start": (1, "a -> b", {"a": {"x": 1}}),
    "on_search_start": ([Objective("size", "minimize")], [Constraint("size", max=1.0)], 6, 60.0),
    "on_trial_end": (TRIAL, 0.5),
    "on_pass_start": (["a", "b"],),
    "on_pass_end": ("a", Outcome.OK, 0.1, ""),
    "on_measure_start": ("latency",),
    "on_measure_end": ("latency", Outcome.OK, 0.1),
    "on_sweep_start": (["a", "b"],),
    "on_model_start": ("a",),
    "on_model_end": (SweepEntry("a", "ok"),),
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


def test_a_plain_function_receives_the_values_that_it_always_did() -> None:
    received: dict[str, dict[str, Any]] = {}
    observer = CallbackObserver(lambda event, **values: received.update({event: values}))
    for hook, values in CALLS.items():
        getattr(observer, hook)(*values)
    assert {event: sorted(values) for event, values in received.items()} == {
        "note": ["text"],
        "phase": ["name"],
        "baseline": ["metrics"],
        "search_begins": ["constraints", "objectives", "seconds", "trials"],
        "trial_begins": ["chain", "number", "point"],
        "trial_ends": ["best", "chain", "number", "point", "result"],
        "pass_begins": ["passes"],
        "pass_ends": ["message", "node", "outcome", "seconds"],
        "measure_begins": ["meter"],
        "measure_ends": ["meter", "outcome", "seconds"],
        "models": ["names"],
        "model_begins": ["name"],
        "model_ends": ["entry"],
    }
    assert received["trial_ends"]["point"] == {"a": {"x": 1}}
    assert received["model_ends"]["entry"]["name"] == "a"


def test_a_member_of_a_group_may_implement_one_hook_alone() -> None:
    recorder = Recorder()
    group = ObserverGroup(SILENT, recorder)
    group.on_phase("model a")
    group.on_note("hello")
    assert recorder.notes == ["hello"]
