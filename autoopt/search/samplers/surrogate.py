"""The surrogate sampler: expected improvement over the choice of chain and its parameters together."""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING

from autoopt.metrics import Objective
from autoopt.search.history import History
from autoopt.search.losses import best_first, feasible, rank_key
from autoopt.search.points import PointTable, sample, total_points
from autoopt.search.samplers.base import Decision, SamplerInputs, Stop, Suggestion, exhausted
from autoopt.search.samplers.initial_points import after_failures, first_untried, initial_points
from autoopt.search.samplers.plain import draw_from
from autoopt.search.surrogates.features import Features
from autoopt.search.surrogates.front import FrontView, front_losses
from autoopt.search.surrogates.models import Expected, LossView
from autoopt.search.surrogates.observations import (
    Observations,
    Single,
    improvement_below,
    loss_columns,
    may_stop,
    scaled_violations,
    single_losses,
)
from autoopt.search.surrogates.stopping import Outlook, SearchState, reason_to_stop
from autoopt.search.trial import UNASKED, ChainSpace, Cost, Proposal
from autoopt.space import Point
from autoopt.tuning import SEARCH

if TYPE_CHECKING:
    from autoopt.search.surrogates.gaussian_process import Array

logger = logging.getLogger(__name__)


class SurrogateSampler:
    """Suggests initial points, then by expected improvement times P(feasible).

    The longer no candidate was better, the less the model is trusted: its deviations count more.

    Expected improvement is that of D. R. Jones, M. Schonlau, W. J. Welch: Efficient global optimization of expensive
    black-box functions, 1998. A running point counts as what the model predicts of it (D. Ginsbourger, R. Le Riche,
    L. Carraro: Kriging is well-suited to parallelize optimization, 2010). Spaces of more than `SEARCH.pool` points are
    sampled at each step. With several objectives, the expected improvement is that of the hypervolume.
    """

    def __init__(self, inputs: SamplerInputs) -> None:
        config = inputs.config
        self._stops_early = config.stop_early
        self._threshold = config.min_expected_improvement
        self._min_rate = config.min_gain_per_minute
        self._chains = [chain for chain in inputs.chains if chain.space.count]
        self._total = total_points(self._chains)
        self._initial = initial_points(self._chains, inputs.budget, config.seed, inputs.first)
        self._seed = config.seed
        self._cost = inputs.cost
        self._features = Features(self._chains)
        self._log_weights = {chain.id: math.log(max(chain.weight, 1e-6)) for chain in self._chains}
        self._table: PointTable | None = None
        self._rows: Array | None = None

    def next(self, history: History, rng: Random) -> Decision:
        """Suggest an initial point, the best one with settings, or that of the highest score."""
        asked = sum(len(history.trials_of(chain.id)) for chain in self._chains)
        if asked >= self._total:
            return exhausted(self._total)
        second = after_failures(self._initial, history, self._seed)
        initial = first_untried(itertools.chain(self._initial, second), history)
        if initial is None:
            initial = with_first_settings(self._chains, history)
        if initial is not None:
            return Suggestion(*initial)
        try:
            return self._best_scored(history, rng)
        except (ArithmeticError, ValueError):  # of numbers too large to square, for example
            logger.warning("the models of the search cannot learn from these results; random points", exc_info=True)
            return draw_from(self._chains, history, rng)

    def _best_scored(self, history: History, rng: Random) -> Decision:
        trials = [trial for trial in history.trials if trial.chain in self._log_weights]
        pool = self._pool(trials, history, rng)
        if not pool.points:
            return Stop(
                f"{len(trials)} of {self._total} points tried: the others fail or repeat known models like them"
            )
        objectives = history.objectives
        learn = single_losses if len(objectives) == 1 else front_losses
        single = learn(pool.trials, objectives)
        progress = SearchState.of(trials, single)
        view = _view(pool, single, objectives)
        expected = view.expect(pool.rows, progress.doubt)
        end = self._end(view, expected, pool, single, progress)
        if end is not None:
            return end
        weights = [self._log_weights[chain_id] for chain_id, _ in pool.points]
        scores: list[float] = (expected.doubtful_score + weights).tolist()
        if any(map(math.isnan, scores)):
            raise FloatingPointError("an expected improvement is not a number")
        if self._total > SEARCH.pool and len(trials) % SEARCH.new_chain == 0:
            scores = _of_new_chains(scores, pool.points, history)
        return Suggestion(*cheapest(pool.points, scores, history, self._cost, rng))

    def _end(
        self, view: LossView | FrontView, expected: Expected, pool: _Pool, single: Single, progress: SearchState
    ) -> Stop | None:
        """The end of the search, if every point that is left promises less than the user asks for, or too little."""
        threshold, may_end = self._threshold, may_stop(single, pool.asked, len(self._initial))
        if threshold is not None and may_end and improvement_below(threshold, float(expected.score.max()), single):
            return Stop(f"no remaining point is expected to improve by {threshold:.2%}")
        if self._stops_early and progress.may_stop(len(self._initial), len(pool.points)):
            gains = view.possible_gains(pool.rows, expected, seed=len(pool.asked))
            outlook = Outlook.of(gains.drawn.tolist(), gains.noise, single.unit)
            reason = reason_to_stop(outlook, progress, self._min_rate, view.gained)
            if reason:
                return Stop(reason, is_early=True)
        return None

    def _pool(self, trials: list[Proposal], history: History, rng: Random) -> _Pool:
        """The points that may give a new candidate, and all that is known of others."""
        if self._total > SEARCH.pool:
            best = best_first(trials, history.objectives)[: SEARCH.good]
            new = sample(self._chains, history, list(map(_point_of, best)), rng)
            rows = self._features.rows([*new, *map(_point_of, trials)])
            return _Pool(new, rows[: len(new)], trials, rows[len(new) :], trials)
        if self._table is None or self._rows is None:
            self._table = PointTable(self._chains)
            self._rows = self._features.rows(self._table.points)
        known = [self._table.rows[history.key(*_point_of(trial))] for trial in trials]
        free, repeats = self._table.split(known, history)
        known_trials = list(trials)
        for row, feedback in rng.sample(repeats, min(len(repeats), SEARCH.max_repeats)):
            known_trials.append(Proposal(UNASKED, *self._table.points[row], feedback=feedback))
            known.append(row)
        return _Pool(
            [self._table.points[row] for row in free], self._rows[free], known_trials, self._rows[known], trials
        )


@dataclass(frozen=True)
class _Pool:
    """Points to choose from with their rows of features, and the trials to learn from with theirs."""

    points: list[tuple[str, Point]]
    rows: Array
    trials: list[Proposal]
    known_rows: Array
    asked: list[Proposal]
    """The trials without those that stand for repeats."""


def _view(pool: _Pool, single: Single, objectives: Sequence[Objective]) -> LossView | FrontView:
    """Return the observations of a pool, for one objective or for several."""
    import numpy as np

    labels = [math.nan if trial.feedback is None else float(feasible(trial.feedback)) for trial in pool.trials]
    violations = scaled_violations(pool.trials)
    violation = None if violations is None else np.array(violations)
    failed = [float(trial.feedback is not None and trial.feedback.failed) for trial in pool.trials]
    observations = Observations(pool.known_rows, np.array(single.loss), np.array(labels), violation, np.array(failed))
    if len(objectives) == 1:
        return LossView(observations.emphasized)
    columns = loss_columns(pool.trials, objectives)
    return FrontView(tuple(replace(observations, loss=np.array(column)) for column in columns))


def _of_new_chains(scores: list[float], points: list[tuple[str, Point]], history: History) -> list[float]:
    """The scores, without those of chains that have a trial; all of them if every chain has one."""
    begun = {trial.chain for trial in history.trials}
    if all(chain in begun for chain, _ in points):
        return scores
    return [-math.inf if chain in begun else score for score, (chain, _) in zip(scores, points, strict=True)]


def _point_of(trial: Proposal) -> tuple[str, Point]:
    return trial.chain, trial.point


def with_first_settings(chains: Sequence[ChainSpace], history: History) -> tuple[str, Point] | None:
    """The best point so far with the first settings that its chain lacks; None if they are tried or lost twice.

    None with several objectives too: settings change the latency alone, which enlarges a front little, and a trial of
    nearly the same point tells the models little about all others.
    """
    tried = [trial for chain in chains for trial in history.trials_of(chain.id) if trial.upto is None]
    best = min(tried, key=lambda trial: rank_key(trial.feedback, history.objectives), default=None)
    if len(history.objectives) > 1 or best is None or not feasible(best.feedback):
        return None
    extension = {chain.nodes[:-1]: chain for chain in chains if chain.sets_only_run}.get(
        history.by_id[best.chain].nodes
    )
    if extension is None or sum(_lost(trial, history) for trial in tried) >= SEARCH.max_losses:
        return None
    return first_untried(_first_extension(extension, best.point), history)


def _first_extension(chain: ChainSpace, point: Point) -> Iterator[tuple[str, Point]]:
    """Yield the point with the first settings that the chain allows, if there are any."""
    settings = chain.nodes[-1]
    for values in chain.space.nodes[settings].iterate():
        extended = {**point, settings: values}
        if chain.space.allows(extended):
            yield chain.id, extended
            return


def _lost(trial: Proposal, history: History) -> bool:
    """Tell if settings were no better than the same point without them."""
    chain = history.by_id[trial.chain]
    if not chain.sets_only_run or trial.feedback is None or len(chain.nodes) == 1:
        return False
    base = history.find(chain.id, trial.point, upto=chain.nodes[-2])
    if base is None or base.feedback is None:
        return False
    return rank_key(trial.feedback, history.objectives) >= rank_key(base.feedback, history.objectives)


def cheapest(
    points: Sequence[tuple[str, Point]], scores: Sequence[float], history: History, cost: Cost | None, rng: Random
) -> tuple[str, Point]:
    """Return the point with the best score.

    Among equals, prefer a point whose candidate is measured already, then the one with the fewest passes that no
    earlier trial ran, then a random one.
    """
    best = max(scores)
    equals = [index for index, score in enumerate(scores) if score >= best - SEARCH.equal]
    if len(equals) > SEARCH.max_compared:
        equals = rng.sample(equals, SEARCH.max_compared)
    else:
        rng.shuffle(equals)

    def price(index: int) -> tuple[bool, int]:
        chain, point = points[index]
        suffix = uncached_suffix(history, chain, point)
        if cost is None:
            return True, suffix
        measured, uncached = cost(chain, point)
        return not measured, min(suffix, uncached)

    if len(equals) > 1:
        return points[min(equals, key=price)]
    return points[equals[0]]


def uncached_suffix(history: History, chain: str, point: Point) -> int:
    """Count the last passes of the chain that no finished trial ran after the same beginning."""
    nodes = history.by_id[chain].nodes
    longest = 0
    for trial in history.trials:
        if trial.feedback is None:
            continue
        shared = 0
        for node, other in zip(nodes, history.by_id[trial.chain].nodes, strict=False):
            if node != other or point.get(node) != trial.point.get(node):
                break
            shared += 1
        longest = max(longest, shared)
    return len(nodes) - longest
