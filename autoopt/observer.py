"""Hooks that tell an observer how a run proceeds: progress on the terminal, Prefect artifacts, a user's own display."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from autoopt.metrics import Constraint, Estimate, Objective
from autoopt.outcome import Outcome
from autoopt.results import SweepEntry, Trial
from autoopt.space import Point


class Observer:
    """Base of all observers; every hook is optional and does nothing here.

    Thread safety: the engine calls hooks from several threads, and two hooks may run at the same time. An
    implementation protects its own state. It must return quickly, because the calling thread waits for it.

    An exception from a hook ends the run, as an error of the run itself would.
    """

    def on_note(self, text: str) -> None:
        """Receive a message for the user."""

    def on_phase(self, name: str) -> None:
        """Enter a phase of a larger run, such as one target or one model of a sweep."""

    def on_baseline(self, metrics: Mapping[str, Estimate]) -> None:
        """Receive the metrics of the source model."""

    def on_search_start(
        self, objectives: Sequence[Objective], constraints: Sequence[Constraint], trials: int, seconds: float
    ) -> None:
        """Start the search of a run, or of one target of a run.

        Args:
            objectives: The run's objectives.
            constraints: The run's constraints.
            trials: Number of trials that it will make at most, those made before a resume included.
            seconds: Time after which no trial starts; infinite without a limit.
        """

    def on_trial_start(self, number: int, chain: str, point: Point) -> None:
        """Start a trial; `chain` is the readable name."""

    def on_trial_end(self, trial: Trial, best: float | None) -> None:
        """Receive a trial's result. `best`: the lowest latency ratio of a feasible trial so far, if there is one."""

    def on_pass_start(self, nodes: Sequence[str]) -> None:
        """Start the passes of these nodes, which share one load and save of the model."""

    def on_pass_end(self, node: str, outcome: Outcome, seconds: float, message: str) -> None:
        """Receive the outcome of one pass."""

    def on_measure_start(self, meter: str) -> None:
        """Start a measurement."""

    def on_measure_end(self, meter: str, outcome: Outcome, seconds: float) -> None:
        """Receive the outcome of a measurement."""

    def on_sweep_start(self, models: Sequence[str]) -> None:
        """Start a sweep over these models."""

    def on_model_start(self, name: str) -> None:
        """Start one model of a sweep."""

    def on_model_end(self, entry: SweepEntry) -> None:
        """Receive the sweep entry of one model."""


SILENT = Observer()
"""The observer that ignores everything."""


class ObserverGroup(Observer):
    """Passes every hook on to several observers, in order."""

    def __init__(self, *observers: Observer) -> None:
        for hook in vars(Observer):
            if hook.startswith("on_"):
                receivers = [getattr(observer, hook) for observer in observers]
                setattr(self, hook, partial(_call_each, receivers))


def _call_each(receivers: Sequence[Callable[..., None]], *values: object) -> None:
    for receive in receivers:
        receive(*values)


class CallbackObserver(Observer):
    """Forwards every hook to a plain function as `function(event, **values)`, the form that `listener=` accepts."""

    def __init__(self, function: Callable[..., None]) -> None:
        self._function = function

    def on_note(self, text: str) -> None:
        self._function("note", text=text)

    def on_phase(self, name: str) -> None:
        self._function("phase", name=name)

    def on_baseline(self, metrics: Mapping[str, Estimate]) -> None:
        self._function("baseline", metrics=metrics)

    def on_search_start(
        self, objectives: Sequence[Objective], constraints: Sequence[Constraint], trials: int, seconds: float
    ) -> None:
        values = {"objectives": objectives, "constraints": constraints, "trials": trials, "seconds": seconds}
        self._function("search_begins", **values)

    def on_trial_start(self, number: int, chain: str, point: Point) -> None:
        self._function("trial_begins", number=number, chain=chain, point=point)

    def on_trial_end(self, trial: Trial, best: float | None) -> None:
        values = {"number": trial.number, "chain": trial.chain, "point": trial.point}
        self._function("trial_ends", **values, result=trial, best=best)

    def on_pass_start(self, nodes: Sequence[str]) -> None:
        self._function("pass_begins", passes=list(nodes))

    def on_pass_end(self, node: str, outcome: Outcome, seconds: float, message: str) -> None:
        self._function("pass_ends", node=node, outcome=str(outcome), seconds=seconds, message=message)

    def on_measure_start(self, meter: str) -> None:
        self._function("measure_begins", meter=meter)

    def on_measure_end(self, meter: str, outcome: Outcome, seconds: float) -> None:
        self._function("measure_ends", meter=meter, outcome=str(outcome), seconds=seconds)

    def on_sweep_start(self, models: Sequence[str]) -> None:
        self._function("models", names=list(models))

    def on_model_start(self, name: str) -> None:
        self._function("model_begins", name=name)

    def on_model_end(self, entry: SweepEntry) -> None:
        self._function("model_ends", entry=entry.to_json())
