"""The decision between the best candidates: its races, and the time that the search leaves for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from autoopt.engine.run.race import FEWEST_ROUNDS, MOST_RIVALS, SECONDS_SHARE, Race
from autoopt.engine.run.ranking import Ranking
from autoopt.engine.run.select import distinct_feasible
from autoopt.engine.work.context import RunContext
from autoopt.problem.problem import Problem
from autoopt.results import Trial

LARGEST_SHARE = 0.25
"""Largest share of the run's time that is set aside before the first race."""
FEW_RIVALS = 2
"""Candidates beside the leader when a race continues; earlier rounds have rejected the others."""


@dataclass
class Decision:
    """The races of a run's candidates. Without data, the lossy ones race among themselves."""

    ctx: RunContext
    ranking: Ranking
    """The ranking of what may win."""
    remeasure: bool
    """True to measure candidates once more in the first races."""
    before_measuring: Callable[[], object]
    """Called before the first round of the races, and of each continuation."""
    lossy_race: Race | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.race = Race(self.ctx, self.ranking, before_measuring=self.before_measuring)

    def run(self, trials: list[Trial]) -> None:
        """Measure the best of these trials until one is certain; later calls continue with all measurements so far."""
        attempt, unverified = self.ctx.attempt, self.ctx.problem.unverified
        has_lossy = any(self.ctx.is_lossy(trial) for trial in distinct_feasible(trials, self.ctx.problem.source))
        races = 2 if unverified and has_lossy else 1
        self.race.until = attempt.clock() + attempt.remaining() / races
        self.race.run(trials, remeasure=self.remeasure)
        if unverified:
            if self.lossy_race is None:
                # It continues with the evidence of the first race.
                self.lossy_race = Race(self.ctx, replace(self.race.ranking, lossy=True))
            self.lossy_race.run(trials, remeasure=self.remeasure)
        self.remeasure = False

    def next_deadline(self) -> float:
        """Compute when a search that continues after `run` ends, as a time on the attempt's clock.

        It leaves as much time as the rounds so far took, or as two of them if there were fewer.
        """
        first = self.ctx.attempt.deadline - search_deadline(self.ctx)
        races = [self.race, self.lossy_race] if self.lossy_race is not None else [self.race]
        seconds = [race.seconds_of_rounds(FEWEST_ROUNDS) for race in races]
        measured = [value for value in seconds if value is not None]
        expected = sum(measured) if measured else _round_seconds(self.ctx.problem, FEWEST_ROUNDS, FEW_RIVALS)
        return self.ctx.attempt.deadline - min(first, expected)


def search_deadline(ctx: RunContext) -> float:
    """End of the search before the first race, as a time on the attempt's clock."""
    attempt, problem = ctx.attempt, ctx.problem
    races = 2 if problem.unverified else 1
    usual = races * _round_seconds(problem, problem.measurement_settings.rounds, MOST_RIVALS)
    return attempt.deadline - min(LARGEST_SHARE * (attempt.deadline - attempt.began), usual)


def _round_seconds(problem: Problem, rounds: int, rivals: int) -> float:
    """Longest time of a number of rounds on a quiet machine, at most that of the rounds in the settings."""
    settings = problem.measurement_settings
    return min(rounds, settings.rounds) * settings.seconds * SECONDS_SHARE * (rivals + 1)
