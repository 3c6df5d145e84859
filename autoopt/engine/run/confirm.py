"""Confirm the best candidates: measure their latency several more times, in turns, so that luck does not choose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from autoopt.engine.work.context import RunContext
from autoopt.engine.work.evaluations import EvaluationOptions, Measurements, evaluate
from autoopt.engine.work.problem import Goal, Problem
from autoopt.measure.settings import ROUNDS, MeasurementSettings
from autoopt.metrics import Estimate
from autoopt.model.candidate import Candidate

EXTRA_ROUNDS = 2
"""Further rounds of a candidate at most, if the machine was disturbed in some. The interval of three rounds is 2.7
times as wide as the interval of many that spread alike, the one of five rounds 1.6 times."""
SECONDS, SECONDS_SHARE = 5.0, 2.0 / ROUNDS
"""Default length of a measurement, and a round's share of it: all rounds take at most twice as long as one trial."""
QUIET_SECONDS, QUIET_SHARE = 0.5, 1.0 / ROUNDS
"""Default time to wait for an undisturbed machine, and a round's share of it."""
Part = Literal["metrics", "source", "ratios"]


@dataclass
class Confirmation:
    """The rounds of one candidate."""

    rounds: list[Measurements] = field(default_factory=list)
    others: Sequence[Confirmation] = ()
    """The candidates that were measured in turns with it."""

    @property
    def metrics(self) -> dict[str, Estimate]:
        return self._combined("metrics")

    @property
    def source(self) -> dict[str, Estimate]:
        """Metrics of the source model, measured beside the candidate."""
        return self._combined("source")

    @property
    def ratios(self) -> dict[str, Estimate]:
        return self._combined("ratios")

    @property
    def keys(self) -> list[str]:
        """Keys of all evaluations."""
        return [key for measurements in self.rounds for key in measurements.keys]

    def undisturbed(self) -> list[Measurements]:
        """The rounds in which no other process used the machine."""
        return [measurements for measurements in self.rounds if not measurements.disturbed]

    def counting(self) -> list[Measurements]:
        """The rounds that count: the undisturbed ones if they are the majority, else all."""
        undisturbed = self.undisturbed()
        if 2 * len(undisturbed) > len(self.rounds):
            return undisturbed
        return self.rounds

    def _combined(self, part: Part) -> dict[str, Estimate]:
        """The estimates of all counting rounds, by metric."""
        from autoopt.measure.intervals.replicas import prediction_interval  # imports numpy

        rounds = _estimates(self, part)
        others = [_estimates(other, part) for other in self.others]
        return {name: prediction_interval(values, [o.get(name, []) for o in others]) for name, values in rounds.items()}


def _estimates(confirmation: Confirmation, part: Part) -> dict[str, list[Estimate]]:
    """The estimates of the counting rounds, by metric of the first one."""
    rounds: list[dict[str, Estimate]] = [getattr(m, part) for m in confirmation.counting()]
    return {name: [estimates[name] for estimates in rounds if name in estimates] for name in rounds[0]}


def confirm(ctx: RunContext, candidates: Sequence[Candidate], occasion: str = "") -> dict[str, Confirmation]:
    """Measure the latencies of candidates in rounds, until each has enough undisturbed ones or time runs out.

    Args:
        ctx: The run. No measurement starts after its deadline.
        candidates: Measured in turns, once in each round.
        occasion: Tells these measurements apart from earlier ones, such as those of another night.

    Returns:
        The rounds by key of the candidate, without candidates that have none. Empty if the run has no latency goal.
    """
    names = latency_metrics(ctx.problem.goal)
    rounds_wanted = MeasurementSettings.parse(ctx.problem.measurement).rounds
    confirmations = {candidate.key: Confirmation() for candidate in candidates}
    for number in range(rounds_wanted + EXTRA_ROUNDS if names else 0):
        options = EvaluationOptions(
            metrics=tuple(names), settings=_round_settings(ctx.problem, number), judged=False, occasion=occasion
        )
        for candidate in candidates:
            confirmation = confirmations[candidate.key]
            if len(confirmation.undisturbed()) >= rounds_wanted or ctx.attempt.remaining() <= 0:
                continue
            measurements = evaluate(ctx, candidate, options)
            if measurements.outcome.good:
                confirmation.rounds.append(measurements)
    return confirmations_of({key: confirmation.rounds for key, confirmation in confirmations.items()})


def confirmations_of(rounds: Mapping[str, list[Measurements]]) -> dict[str, Confirmation]:
    """Rounds that were measured in turns, as confirmations by key, without candidates that have none."""
    confirmations = {key: Confirmation(measurements) for key, measurements in rounds.items() if measurements}
    for key, confirmation in confirmations.items():
        confirmation.others = [other for name, other in confirmations.items() if name != key]
    return confirmations


def judge_again(goal: Goal, first: Measurements, confirmation: Confirmation) -> Measurements:
    """The first measurements with the confirmed latencies in place of the first ones, and the constraints judged."""
    measurements = replace(
        first,
        metrics=first.metrics | confirmation.metrics,
        source=first.source | confirmation.source,
        ratios=first.ratios | confirmation.ratios,
        keys=[*first.keys, *confirmation.keys],
        verdicts=[],
    )
    measurements.judge(goal, measurements.metrics)
    return measurements


def latency_metrics(goal: Goal) -> list[str]:
    """The latency metrics of a run; none if neither an objective nor a constraint is one."""
    targets = [objective.metric for objective in goal.objectives]
    targets += [constraint.metric for constraint in goal.constraints]
    if not any(goal.metric(name).kind == "latency" for name in targets):
        return []
    return [metric.name for metric in goal.metrics if metric.kind == "latency"]


def confirmation_seconds(problem: Problem, count: int) -> float:
    """Time that confirming this many candidates takes."""
    return count * MeasurementSettings.parse(problem.measurement).rounds * float(_round_settings(problem, 0)["seconds"])


def _round_settings(problem: Problem, number: int) -> dict[str, Any]:
    """Settings of one round. Each has a seed of its own, so that the order of the blocks differs."""
    settings: Mapping[str, Any] = problem.measurement
    return {
        "seconds": settings.get("seconds", SECONDS) * SECONDS_SHARE,
        "quiet_seconds": settings.get("quiet_seconds", QUIET_SECONDS) * QUIET_SHARE,
        "seed": int(settings.get("seed", 0)) + number,
    }
