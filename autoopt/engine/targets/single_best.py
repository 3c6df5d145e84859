"""From the results of several targets to the best model for each and the best single one for all.

The few best of each target are measured on every other one, all alike, so that the choice rests on measurements. The
best single model is the one that meets the constraints on all targets and has the best geometric mean, over the
targets, of its paired ratios of the first objective; the source model (its mean is 1) where none gains for certain.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from autoopt.engine.run.loop import CompletedTrial
from autoopt.engine.run.select import feasible_once, source_choice, trial_choice
from autoopt.engine.run.session import CONFIRM
from autoopt.engine.targets.part import TargetPart
from autoopt.metrics import Estimate
from autoopt.model.candidate import Candidate
from autoopt.results import Choice, SingleBest

HOW = "geometric mean of the ratios over the targets"
Made = tuple[CompletedTrial, str]
"""A trial, and the target whose search made it."""
Measured = Mapping[str, Mapping[str, CompletedTrial]]
"""By target, then by key of the candidate: what it came to there."""


def join_targets(
    parts: list[TargetPart],
    until: float,
    by_machine: Callable[[list[TargetPart], Callable[[TargetPart], None]], None],
) -> tuple[dict[str, tuple[Choice | None, str]], SingleBest | None, list[str]]:
    """The best model of each target with the name of the target whose search made it, the best single one, and notes.

    Args:
        until: when no further measurement begins, on `time.monotonic`.
    """
    made = contenders(parts)
    measured: dict[str, dict[str, CompletedTrial]] = {part.name: {} for part in parts}

    def measure(part: TargetPart) -> None:
        session = part.open_session
        session.ctx.deadline = max(session.ctx.deadline, until)
        for key, (told, _) in made.items():
            if time.monotonic() < until:
                measured[part.name][key] = session.measured_here(told)

    by_machine(parts, measure)
    lacking = len(made) * len(parts) - sum(len(found) for found in measured.values())
    notes = [f"time is up: {lacking} measurements of good models on other targets were not made"] if lacking else []
    best = {part.name: _best_on(part, made, measured[part.name]) for part in parts}
    return best, _single(parts, made, measured), notes


def contenders(parts: list[TargetPart]) -> dict[str, Made]:
    """The best that each target's search chose and its few best, by candidate, each once."""
    made: dict[str, Made] = {}
    for part in parts:
        trials, best = part.open_session.told(), part.result.best if part.result else None
        key = Candidate(best.artifact, best.session_options).key if best else ""
        feasible = feasible_once(trials, part.open_session.ctx.source)
        chosen = [t for t in feasible if t.result.candidate and t.result.candidate.key == key]
        for told in (*chosen, *part.open_session.ranking.few_best(trials, CONFIRM)):
            if told.result.candidate is not None:
                made.setdefault(told.result.candidate.key, (told, part.name))
    return made


def _best_on(
    part: TargetPart, made: Mapping[str, Made], here: Mapping[str, CompletedTrial]
) -> tuple[Choice | None, str]:
    """The best on one target of all that was measured there; its own search's where not all of that could be."""
    assert part.result is not None
    if len(here) < len(made):
        return part.result.best, part.name
    best = part.open_session.ranking.best(list(here.values()))
    key = Candidate(best.artifact, best.session_options).key if best else ""
    own = {told.result.candidate.key for told in part.open_session.told() if told.result.candidate is not None}
    return best, part.name if key in own or key not in made else made[key][1]


def _single(parts: list[TargetPart], made: Mapping[str, Made], measured: Measured) -> SingleBest | None:
    goal = parts[0].open_session.ctx.goal
    metric, maximize = goal.objectives[0].metric, goal.objectives[0].goal == "maximize"
    rows: list[Row] = []
    for key, (told, made_on) in made.items():
        on = {part.name: measured[part.name].get(key) for part in parts}
        there = {n: t for n, t in on.items() if t is not None and t.result.feasible and metric in t.result.metrics}
        if len(there) == len(parts):
            choices = {p.name: trial_choice(p.open_session.ctx, there[p.name]) for p in parts}
            passes = sum(not n.inserted for n in told.chain.nodes)
            rows.append(Row(choices, made_on, passes, told.chain.id))
    paired = all(metric in c.ratios for row in rows for c in row.choices.values())
    if all(p.open_session.ranking.source_meets for p in parts):
        sources = {p.name: source_choice(p.open_session.ctx, p.open_session.baseline()) for p in parts}
        gains = [r for r in rows if not paired or r.gains(metric, maximize)]
        rows = [Row(sources, parts[0].name), *gains]
    if not rows:
        return None
    found = min(rows, key=lambda r: r.rank(metric, paired, maximize))
    how = HOW if paired else HOW.replace("ratios", "values")
    return SingleBest(metric, how, found.mean(metric, paired), found.choices, found.made_on)


@dataclass(frozen=True)
class Row:
    """A model that meets the constraints on all targets, as it is on each."""

    choices: Mapping[str, Choice]
    made_on: str
    passes: int = 0
    chain: str = ""

    def mean(self, metric: str, paired: bool) -> Estimate:
        """Over the targets: of the ratios where all candidates have one, else of the values."""
        if paired:
            return mean([c.ratios.get(metric, Estimate.exact(1.0)) for c in self.choices.values()])
        return mean([c.intervals.get(metric, Estimate.exact(c.metrics[metric])) for c in self.choices.values()])

    def gains(self, metric: str, maximize: bool) -> bool:
        """Whether it is better than the source beyond the interval."""
        found = self.mean(metric, paired=True)
        return found.low > 1 if maximize else found.high < 1

    def rank(self, metric: str, paired: bool, maximize: bool) -> tuple[float, int, str]:
        value = self.mean(metric, paired).value
        return -value if maximize else value, self.passes, self.chain


def mean(values: Sequence[Estimate]) -> Estimate:
    """The geometric mean of positive values, with the interval that follows from theirs, taken as independent; the
    arithmetic one where a value is not positive."""
    count = len(values)
    if any(v.low <= 0 for v in values):
        middle = sum(v.value for v in values) / count
        down = math.hypot(*(v.value - v.low for v in values)) / count
        up = math.hypot(*(v.high - v.value for v in values)) / count
        return Estimate(middle, middle - down, middle + up)
    middle = math.exp(sum(math.log(v.value) for v in values) / count)
    down = math.hypot(*(math.log(v.value / v.low) for v in values)) / count
    up = math.hypot(*(math.log(v.high / v.value) for v in values)) / count
    return Estimate(middle, middle * math.exp(-down), middle * math.exp(up))
