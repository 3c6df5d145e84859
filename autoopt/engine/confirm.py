"""The latency of the few best measured again, several times over, so that luck does not choose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from autoopt.engine.context import RunContext
from autoopt.engine.evaluations import Measured, evaluate
from autoopt.metrics import Estimate, get_metric
from autoopt.model.candidate import Candidate

ROUNDS = 5
"""How many separate measurements each of them gets, in turns: what a machine does changes within seconds, and one
measurement, however long, sees little of it."""
FINAL = {"seconds": (5.0, 2.0 / ROUNDS), "quiet_seconds": (0.5, 1.0 / ROUNDS)}
"""The settings of a round: (default, factor) of the run's. All rounds take at most twice as long as one trial."""


@dataclass
class Confirmed:
    """What the rounds of one candidate have brought."""

    rounds: list[Measured] = field(default_factory=list)

    @property
    def metrics(self) -> dict[str, Estimate]:
        return _together([r.metrics for r in self._counting()])

    @property
    def source(self) -> dict[str, Estimate]:
        """Of the source model beside it."""
        return _together([r.source for r in self._counting()])

    @property
    def ratios(self) -> dict[str, Estimate]:
        return _together([r.ratios for r in self._counting()])

    @property
    def keys(self) -> list[str]:
        """Of all evaluations."""
        return [key for r in self.rounds for key in r.keys]

    def _counting(self) -> list[Measured]:
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
    """What candidates come to, by key, each measured once a round in turns; empty where no objective is a latency.

    Args:
        more: asked before each measurement whether there is time for it.
        occasion: what makes these other measurements than earlier ones, such as a night.
    """
    names = latencies(ctx)
    found = {candidate.key: Confirmed() for candidate in candidates if names}
    for number in range(ROUNDS):
        for candidate in candidates:
            if not names or not more():
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
    return {key: confirmed for key, confirmed in found.items() if confirmed.rounds}


def latencies(ctx: RunContext) -> list[str]:
    """The latency metrics of a run; none where no objective is one."""
    wanted = any(get_metric(o.metric, ctx.goal.custom).kind == "latency" for o in ctx.goal.objectives)
    return [m.name for m in ctx.goal.metrics if m.kind == "latency"] if wanted else []


def seconds_for(ctx: RunContext, count: int) -> float:
    """How long it takes to confirm that many candidates."""
    return count * ROUNDS * float(_settings(ctx, 0)["seconds"])


def _settings(ctx: RunContext, number: int) -> dict[str, Any]:
    final = {name: ctx.measurement.get(name, default) * factor for name, (default, factor) in FINAL.items()}
    return {**final, "seed": int(ctx.measurement.get("seed", 0)) + number}


def _together(rounds: Sequence[dict[str, Estimate]]) -> dict[str, Estimate]:
    from autoopt.measure.units import together  # imports numpy

    return {name: together([r[name] for r in rounds if name in r]) for name in rounds[0]}
