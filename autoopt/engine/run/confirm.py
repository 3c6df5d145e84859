"""The latency of the few best measured again, several times over, so that luck does not choose."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from autoopt.engine.work.context import Goal, RunContext
from autoopt.engine.work.evaluations import Measured, evaluate
from autoopt.measure.settings import ROUNDS, rounds_of
from autoopt.metrics import Estimate, get_metric
from autoopt.model.candidate import Candidate

EXTRA = 2
"""How many more a candidate gets, at most, where the machine was not left alone in some: the interval of three
rounds is 2.7 times as wide as that of many which spread alike, that of five 1.6 times."""
FINAL = {"seconds": (5.0, 2.0 / ROUNDS), "quiet_seconds": (0.5, 1.0 / ROUNDS)}
"""The settings of a round: (default, factor) of the run's. All rounds take at most twice as long as one trial,
and a little more on a busy machine."""


@dataclass
class Confirmed:
    """What the rounds of one candidate have brought."""

    rounds: list[Measured] = field(default_factory=list)
    beside: Sequence[Confirmed] = ()
    """The others that were measured in turns with it."""

    @property
    def metrics(self) -> dict[str, Estimate]:
        return self._together(lambda r: r.metrics)

    @property
    def source(self) -> dict[str, Estimate]:
        """Of the source model beside it."""
        return self._together(lambda r: r.source)

    @property
    def ratios(self) -> dict[str, Estimate]:
        return self._together(lambda r: r.ratios)

    @property
    def keys(self) -> list[str]:
        """Of all evaluations."""
        return [key for r in self.rounds for key in r.keys]

    def enough(self, rounds: int) -> bool:
        """Whether there are so many rounds in which the machine was left alone."""
        return sum(not r.disturbed for r in self.rounds) >= rounds

    def _together(self, which: Callable[[Measured], dict[str, Estimate]]) -> dict[str, Estimate]:
        from autoopt.measure.intervals.replicas import together  # imports numpy

        own, *others = (tuple(map(which, c.counting())) for c in (self, *self.beside))
        return {n: together(_of(n, own), [_of(n, other) for other in others]) for n in own[0]}

    def counting(self) -> list[Measured]:
        """The rounds in which the machine was left alone, where these are most; else all."""
        calm = [r for r in self.rounds if not r.disturbed]
        return calm if 2 * len(calm) > len(self.rounds) else self.rounds


def confirm(
    ctx: RunContext,
    candidates: Sequence[Candidate],
    *,
    more: Callable[[], bool] = lambda: True,
    occasion: str = "",
) -> dict[str, Confirmed]:
    """What candidates come to, by key, each measured once a round in turns; empty where no latency is asked for.

    Args:
        more: asked before each measurement whether there is time for it.
        occasion: what makes these other measurements than earlier ones, such as a night.
    """
    names = latencies(ctx)
    found = {candidate.key: Confirmed() for candidate in candidates if names}
    rounds = rounds_of(ctx.measurement)
    for number in range(rounds + EXTRA):
        for candidate in candidates:
            if not names or found[candidate.key].enough(rounds) or not more():
                continue
            measured = evaluate(
                ctx,
                candidate,
                compare=ctx.source,
                settings=_settings(ctx, number),
                only=names,
                judged=False,
                occasion=occasion,
            )
            if measured.outcome.good:
                found[candidate.key].rounds.append(measured)
    return confirmed_of({key: confirmed.rounds for key, confirmed in found.items()})


def confirmed_of(rounds: Mapping[str, list[Measured]]) -> dict[str, Confirmed]:
    """What comes of rounds that were measured in turns, by key; without those that have none."""
    found = {key: Confirmed(measured) for key, measured in rounds.items() if measured}
    for key, confirmed in found.items():
        confirmed.beside = [other for name, other in found.items() if name != key]
    return found


def judged_again(goal: Goal, first: Measured, again: Confirmed) -> Measured:
    """What was known of a candidate, with these latencies in place of the first one's; the constraints judged anew."""
    latencies = {part: getattr(first, part) | getattr(again, part) for part in ("metrics", "source", "ratios")}
    measured = replace(first, **latencies, keys=[*first.keys, *again.keys], verdicts=[])
    measured.judge(goal, measured.metrics)
    return measured


def latencies(ctx: RunContext) -> list[str]:
    """The latency metrics of a run; none where neither an objective nor a constraint is one."""
    asked = [o.metric for o in ctx.goal.objectives] + [c.metric for c in ctx.goal.constraints]
    wanted = any(get_metric(name, ctx.goal.custom).kind == "latency" for name in asked)
    return [m.name for m in ctx.goal.metrics if m.kind == "latency"] if wanted else []


def seconds_for(ctx: RunContext, count: int) -> float:
    """How long it takes to confirm that many candidates."""
    return count * rounds_of(ctx.measurement) * float(_settings(ctx, 0)["seconds"])


def _settings(ctx: RunContext, number: int) -> dict[str, Any]:
    final = {name: ctx.measurement.get(name, default) * factor for name, (default, factor) in FINAL.items()}
    return {**final, "seed": int(ctx.measurement.get("seed", 0)) + number}


def _of(name: str, rounds: Sequence[dict[str, Estimate]]) -> list[Estimate]:
    return [r[name] for r in rounds if name in r]
