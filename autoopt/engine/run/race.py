"""Decide which candidate is the fastest: measure those that may be, in turns, until more rounds would not matter.

A Bayesian race (best-arm identification). All measurements of a candidate count together: its trial, and the rounds of
this run and of earlier ones. After each round, only candidates continue of which a few more rounds are expected to
reveal a gain of more than `RACE.worthwhile` on the leader. For goals other than speed, the few best are measured in the
same way until they are known well enough.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import mean
from typing import Any

from autoopt.engine.run.evidence import Evidence, judge_again
from autoopt.engine.run.ranking import Ranking
from autoopt.engine.run.select import distinct_feasible
from autoopt.engine.run.trial import with_measurements
from autoopt.engine.work.context import RunContext
from autoopt.engine.work.evaluations import Measurements, evaluate
from autoopt.engine.work.meter_runs import EvaluationOptions, Rounds
from autoopt.errors import TimeUp
from autoopt.metrics import STEADY_STATE, Estimate, headline_metrics
from autoopt.model.candidate import Candidate
from autoopt.problem.problem import Goal, Problem
from autoopt.report.words.formatting import ALL_MEASUREMENTS, FIRST_MEASUREMENT, plural
from autoopt.results import Trial
from autoopt.tuning import RACE, TIMING

SECONDS_SHARE, QUIET_SHARE = 0.2, 0.2
"""Shares of the settings `seconds`, for each model of a round and the source, and `quiet_seconds`."""


@dataclass
class Race:
    """The race of a run's candidates."""

    ctx: RunContext
    ranking: Ranking
    """Without evidence the race adds its own; another race's evidence counts in this one too."""
    until: float = float("inf")
    """Time on the attempt's clock from which no round starts."""
    before_measuring: Callable[[], object] = lambda: None
    """Called before the first round of each `run`."""
    evidence: Evidence = field(init=False)
    undecided: str = ""
    """The reason why the race did not decide; empty if it did."""
    _measured: set[str] = field(default_factory=set, init=False)
    """Keys of the candidates that this race measured."""
    _round_seconds: list[float] = field(default_factory=list, init=False)
    """Duration of each round."""
    _is_announced: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        if self.ranking.evidence is not None:
            self.evidence = self.ranking.evidence
            return
        rounds = Rounds(self.ctx, tuple(latency_metrics(self.ctx.problem.goal)))
        self.evidence = Evidence(rounds, self.ranking.baseline.metrics)
        self.ranking = replace(self.ranking, evidence=self.evidence)

    def run(self, trials: list[Trial], remeasure: bool = False) -> None:
        """Measure until the race is decided or its rounds are used up.

        In the list, trials of measured candidates get the pooled figures, and their constraints are judged again. With
        `remeasure`, feasible candidates are measured once more first: those whose ratio is not known well, or all if
        there are none. When called again with further trials, the race continues with its earlier measurements.
        """
        self._is_announced = False
        if not self.evidence.rounds.metrics or not self.ctx.problem.measurement_settings.rounds:
            return
        feasible = self.ranking.few_best(trials, RACE.most_pooled)
        self.evidence.load([trial.model for trial in feasible])
        if remeasure:
            self._measure_once_more(feasible)
        self._update(trials)
        for number in range(RACE.extension * self.ctx.problem.measurement_settings.rounds):
            contenders = self.contenders(trials)
            if not contenders or not self._measure(contenders, number):
                break
            self._update(trials)
        self.undecided = self._doubt(trials)

    def _measure_once_more(self, trials: Sequence[Trial]) -> None:
        # The machine may be quieter by now.
        is_narrow = partial(self.evidence.is_narrow, metric=self._deciding_metric, on_this_machine=False)
        trials = [trial for trial in trials if not is_narrow(trial.model_key)] or trials
        for first in range(0, len(trials), RACE.most_rivals):
            self._measure(trials[first : first + RACE.most_rivals], first)

    def contenders(self, trials: Sequence[Trial]) -> list[Trial]:
        """The candidates of the next round, the leader first; none if the race is decided."""
        trials = self._other_than_source(trials)
        if not self.ranking.by_speed:
            few_best = self.ranking.few_best(trials, RACE.few_best)
            return [trial for trial in few_best if not self._is_settled(trial)]
        leader = self.ranking.leader(trials)
        if leader is None:
            return []
        rivals = self.ranking.promising_rivals(leader, trials, RACE.worthwhile, RACE.fewest_rounds)
        if not rivals and self._is_done(leader):
            return []
        # What does the same work need not be measured twice in a round.
        distinct: dict[str, Trial] = {}
        for trial in (leader, *rivals):
            distinct.setdefault(self.evidence.subject(trial.model_key), trial)
        return _of_one_round(list(distinct.values()))

    def _other_than_source(self, trials: Sequence[Trial]) -> list[Trial]:
        """The trials for which the runtime does not execute the source's graph: the others can gain nothing."""
        return [trial for trial in trials if not self.evidence.equals_source(trial.model_key)]

    def _measure(self, trials: Sequence[Trial], number: int) -> bool:
        """Measure the candidates of these trials in turns; false if the time is over."""
        attempt = self.ctx.attempt
        remaining = min(attempt.remaining(), self.until - attempt.clock())
        if remaining <= 0:
            return False
        if not self._is_announced:
            self._is_announced = True
            lossy = "lossy " if self.ranking.lossy else ""
            origin = f"trials show the {FIRST_MEASUREMENT} of each, the result {ALL_MEASUREMENTS}"
            attempt.observer.on_phase(f"measuring the best {lossy}candidates against each other; {origin}")
            self.before_measuring()
        candidates = [trial.model for trial in trials]
        self._measured.update(candidate.key for candidate in candidates)
        settings = round_settings(self.evidence, candidates, number, is_certain=self.ranking.gains(trials[0]))
        settings["seconds"] = min(settings["seconds"], remaining)
        began = attempt.clock()
        try:
            self.evidence.measure(candidates, settings)
        except TimeUp:
            return False
        self._round_seconds.append(attempt.clock() - began)
        return True

    def seconds_of_rounds(self, least: int) -> float | None:
        """The time of as many rounds as this race had, but of at least `least`; None without any."""
        if not self._round_seconds:
            return None
        return mean(self._round_seconds) * max(least, len(self._round_seconds))

    def _update(self, trials: list[Trial]) -> None:
        """Give the trials of candidates that were measured in rounds the pooled figures."""
        store = self.ctx.store
        judged: dict[str, Measurements] = {}
        for trial in distinct_feasible(trials, self.ctx.problem.source):
            key = trial.model_key
            if self.evidence.rounds_of(key):
                records = store.results.evaluations(trial.evaluations)
                first = Measurements.of(records[name] for name in trial.evaluations if name in records)
                judged[key] = judge_again(self.ctx.problem.goal, first, self.evidence.measurements(key))
        for index, trial in enumerate(trials):
            if trial.feasible and trial.model_key in judged:
                trials[index] = with_measurements(trial, judged[trial.model_key])

    def _is_done(self, leader: Trial) -> bool:
        """True if the leader need not be measured again, or would not be known better afterwards."""
        if self._is_settled(leader) or self._is_exhausted(leader):
            return True
        return not self._may_gain(leader, RACE.worthwhile)

    def _is_settled(self, trial: Trial) -> bool:
        """True if the candidate was measured in enough rounds, and its ratio and its gain are certain enough."""
        key = trial.model_key
        rounds = self.evidence.rounds_of(key)
        if rounds < min(RACE.fewest_rounds, self.ctx.problem.measurement_settings.rounds):
            return False
        if not self.ranking.by_speed:
            is_narrow = self.evidence.is_narrow(key, self._deciding_metric)
            return is_narrow or rounds >= self.ctx.problem.measurement_settings.rounds
        is_narrow = self.evidence.is_narrow(key, self._deciding_metric, RACE.gain_share)
        return is_narrow and (self.ranking.gains(trial) or not self.ranking.source_meets)

    def _is_exhausted(self, trial: Trial) -> bool:
        """True if most of what is not known is an error that no repetition reduces on this machine as it is now."""
        key, metric = trial.model_key, self._deciding_metric
        if key not in self._measured:
            return False  # It may be quieter than in earlier runs.
        if self.evidence.rounds_of(key) < RACE.fewest_rounds or not self.evidence.is_narrow(key, metric):
            return False
        return self.evidence.has(key, metric) and self.evidence.is_exhausted(key, metric)

    def _may_gain(self, trial: Trial, worthwhile: float) -> bool:
        """True if the source cannot be the answer, or the trial promises to gain more than this on it."""
        return not self.ranking.source_meets or self.ranking.expected_gain(trial) > worthwhile

    def _doubt(self, trials: Sequence[Trial]) -> str:
        """Say why the race is not decided; empty if it is."""
        trials = self._other_than_source(trials)
        leader = self.ranking.leader(trials) if self.ranking.by_speed else None
        if leader is None:
            return ""
        rivals = self.ranking.rivals(leader, trials, RACE.open_gain)
        if rivals:
            others = plural(len(rivals), "other candidate")
            return f"{others} may be more than {100 * RACE.open_gain:g} % better than the best one"
        # A ratio that is not known well leaves more open than its mean says.
        worthwhile = (
            RACE.open_gain if self.evidence.is_narrow(leader.model_key, self._deciding_metric) else RACE.worthwhile
        )
        if self.ranking.source_meets and not self.ranking.gains(leader) and self._may_gain(leader, worthwhile):
            return "no candidate's gain on the source model is certain"
        return ""

    @property
    def _deciding_metric(self) -> str:
        """The latency metric of the first objective that has one, else the first that is measured."""
        for objective in self.ctx.problem.goal.objectives:
            if objective.metric in STEADY_STATE:
                return objective.metric
        return self.evidence.rounds.metrics[0]


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
        seconds = [race.seconds_of_rounds(RACE.fewest_rounds) for race in races]
        measured = [value for value in seconds if value is not None]
        expected = sum(measured) if measured else _round_seconds(self.ctx.problem, RACE.fewest_rounds, RACE.few_rivals)
        return self.ctx.attempt.deadline - min(first, expected)


def _of_one_round(contenders: list[Trial]) -> list[Trial]:
    """The first of these trials whose models are measured in one round: few, and small together."""
    kept = contenders[: RACE.most_rivals]
    sizes = [trial.metrics["size"].value if "size" in trial.metrics else 0.0 for trial in kept]
    while len(kept) > 2 and sum(sizes[: len(kept)]) > RACE.most_bytes:
        kept.pop()
    return kept


def search_deadline(ctx: RunContext) -> float:
    """End of the search before the first race, as a time on the attempt's clock."""
    attempt, problem = ctx.attempt, ctx.problem
    races = 2 if problem.unverified else 1
    usual = races * _round_seconds(problem, problem.measurement_settings.rounds, RACE.most_rivals)
    return attempt.deadline - min(RACE.largest_share * (attempt.deadline - attempt.began), usual)


def _round_seconds(problem: Problem, rounds: int, rivals: int) -> float:
    """Longest time of a number of rounds on a quiet machine, at most that of the rounds in the settings."""
    settings = problem.measurement_settings
    return min(rounds, settings.rounds) * settings.seconds * SECONDS_SHARE * (rivals + 1)


def measure_repeatedly(ctx: RunContext, candidate: Candidate, occasion: str = "") -> Evidence:
    """Measure the latency of one candidate until its ratio is known well enough, in at most `rounds` rounds.

    No round starts after the run's deadline. `occasion` tells these measurements apart from earlier ones, such as those
    of another night.
    """
    metrics = tuple(latency_metrics(ctx.problem.goal))
    evidence = Evidence(Rounds(ctx, metrics, occasion))
    if not metrics:
        return evidence
    evidence.load([candidate])
    most_rounds = ctx.problem.measurement_settings.rounds
    while evidence.rounds_of(candidate.key) < most_rounds and ctx.attempt.remaining() > 0:
        number = evidence.rounds_of(candidate.key)
        if number >= RACE.fewest_rounds and evidence.is_narrow(candidate.key, metrics[0]):
            break
        try:
            if not evidence.measure([candidate], round_settings(evidence, [candidate], number)):
                break
        except TimeUp:
            break
    return evidence


def measure_exactly(
    ctx: RunContext,
    candidate: Candidate,
    baseline: Mapping[str, Estimate],
    options: EvaluationOptions = EvaluationOptions(),  # noqa: B008  frozen
) -> Measurements:
    """Measure all metrics of a candidate; its latencies repeatedly if it meets the constraints.

    Ratios refer to the metrics of the source model in `baseline`; without any, nothing is repeated.
    """
    measurements = evaluate(ctx, candidate, options)
    if not measurements.outcome.good or measurements.violation > 0 or not baseline:
        return measurements
    evidence = measure_repeatedly(ctx, candidate)
    if not evidence.rounds_of(candidate.key):
        return measurements
    evidence.baseline = baseline
    return judge_again(ctx.problem.goal, measurements, evidence.measurements(candidate.key))


def latency_metrics(goal: Goal) -> list[str]:
    """The latency metrics of a run; none if neither an objective nor a constraint is one."""
    targets = headline_metrics(goal.objectives, goal.constraints)
    if not any(goal.metric(name).kind == "latency" for name in targets):
        return []
    return [metric.name for metric in goal.metrics if metric.kind == "latency"]


def round_settings(
    evidence: Evidence, candidates: Sequence[Candidate], number: int, *, is_certain: bool = False
) -> dict[str, Any]:
    """Settings of one round.

    Args:
        evidence: What was measured so far.
        candidates: Those of the round.
        number: Number of the round, which has a seed of its own, so that the order of the blocks differs.
        is_certain: True if the gain of the first candidate on the source is certain.
    """
    settings = evidence.rounds.ctx.problem.measurement_settings
    seconds = settings.seconds * SECONDS_SHARE * (len(candidates) + 1)
    if not is_certain and any(evidence.is_on_one_thread(candidate.key) for candidate in candidates):
        seconds *= RACE.busy_factor
    return {
        "seconds": seconds,
        # Several rounds tell more than one exact one, because a machine changes its pace.
        "target_width": max(settings.target_width, TIMING.screening_width),
        "quiet_seconds": settings.quiet_seconds * QUIET_SHARE,
        "seed": settings.seed + number,
    }
