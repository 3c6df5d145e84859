"""The surrogate sampler: expected improvement over the choice of chain and its parameters together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final

from autoopt.search.history import History
from autoopt.search.losses import feasible, rank_key
from autoopt.search.points import POOL, PointTable, random_sample, sample, total_points
from autoopt.search.samplers.base import Decision, Sampler, SamplerInputs, Stop, Suggestion
from autoopt.search.samplers.initial_points import first_untried, initial_points
from autoopt.search.samplers.small_surrogate import SmallSurrogateSampler
from autoopt.search.samplers.tie_breaking import cheapest
from autoopt.search.surrogates.features import Features
from autoopt.search.surrogates.scalarization import Single, improvement_below, may_stop, single_losses
from autoopt.search.surrogates.stopping import MAX_CHANCE, STOPPED, chance_of_any, gain_in_losses, is_settled
from autoopt.search.trial import UNASKED, ChainSpace, Cost, Proposal, Trial
from autoopt.space import Point

if TYPE_CHECKING:
    from autoopt.search.surrogates.models import Array, Expected, Kind

SMALL: Final = 30
"""Largest space, in points, that `SmallSurrogateSampler` searches."""
BEST: Final = 5
"""Best points whose neighbourhood is sampled in spaces that are too large to enumerate."""
MAX_REPEATS: Final = 100
"""Points that repeat a known candidate from which the models learn too; more cost time and teach little."""
MIN_INITIAL: Final = 4
"""Points that the models need at least."""


def create(inputs: SamplerInputs) -> Sampler:
    """Create the sampler: in plain Python for a small space, because loading numeric libraries costs more."""
    config = inputs.config
    if total_points(inputs.chains) <= SMALL:
        return SmallSurrogateSampler(
            inputs.chains,
            seed=config.seed,
            threshold=config.min_expected_improvement,
            stops_early=config.stop_early,
            cost=inputs.cost,
        )
    return SurrogateSampler(
        inputs.chains,
        budget=inputs.budget,
        seed=config.seed,
        threshold=config.min_expected_improvement,
        stops_early=config.stop_early,
        cost=inputs.cost,
    )


class SurrogateSampler:
    """Suggests initial points, then by expected improvement times P(feasible).

    A Gaussian process and a random forest (as in F. Hutter, H. Hoos, K. Leyton-Brown: Sequential model-based
    optimization for general algorithm configuration, 2011) take turns as the model. Spaces of more than `POOL` points
    are sampled at each step. Several objectives are weighted at random each time.
    """

    def __init__(
        self,
        chains: Sequence[ChainSpace],
        *,
        budget: int,
        seed: int,
        threshold: float | None = None,
        stops_early: bool = False,
        cost: Cost | None = None,
    ) -> None:
        self._stops_early = stops_early
        self._chains = [chain for chain in chains if chain.space.count]
        self._total = total_points(self._chains)
        self._initial = initial_points(self._chains, budget, seed)
        self._threshold = threshold
        self._cost = cost
        self._features = Features(self._chains)
        self._log_weights = {chain.id: math.log(max(chain.weight, 1e-6)) for chain in self._chains}
        self._table: PointTable | None = None
        self._rows: Array | None = None

    def next(self, history: History, rng: Random) -> Decision:
        """Suggest an initial point, or the point of the highest score."""
        asked = sum(len(history.trials_of(chain.id)) for chain in self._chains)
        if asked >= self._total:
            return Stop(f"all {self._total} points tried")
        initial = first_untried(self._initial, history)
        if initial is not None:
            return Suggestion(*initial)
        if asked >= MIN_INITIAL:
            return self._best_scored(history, rng)
        while True:
            chain, point = random_sample(self._chains, rng)
            if history.find(chain, point) is None:
                return Suggestion(chain, point)

    def _best_scored(self, history: History, rng: Random) -> Decision:
        import numpy as np

        from autoopt.search.surrogates.models import Observations, expect

        trials: list[Trial] = []
        for chain in self._chains:
            trials += history.trials_of(chain.id)
        trials.sort(key=lambda trial: trial.proposal.number)
        pool = self._pool(trials, history, rng)
        if not pool.points:
            return Stop(f"all {self._total} points tried")
        single = single_losses(pool.trials, history.objectives, rng)
        labels = [math.nan if trial.feedback is None else float(feasible(trial.feedback)) for trial in pool.trials]
        observations = Observations(pool.known_rows, np.array(single.loss), np.array(labels))
        kind: Kind = "gp"
        other: Kind = "rf"
        if len(trials) % 2:
            kind, other = other, kind
        gain = gain_in_losses(single)
        expected = expect(observations, pool.rows, kind, rng.getrandbits(31), gain)
        stop = self._stop(expected, single, trials, history)
        if stop is not None:
            # The other model has to agree.
            second = expect(observations, pool.rows, other, rng.getrandbits(31), gain)
            stop = self._stop(second, single, trials, history)
            if stop is not None:
                return stop
        scores = [float(s) + self._log_weights[c] for s, (c, _) in zip(expected.score, pool.points, strict=True)]
        return Suggestion(*cheapest(pool.points, scores, history, self._cost, rng))

    def _stop(self, expected: Expected, single: Single, trials: list[Trial], history: History) -> Stop | None:
        """The end of the search, if this model expects too little of the points that are left."""
        initial = len(self._initial)
        threshold = self._threshold
        best = float(expected.score.max())
        if threshold is not None and may_stop(single, trials, initial) and improvement_below(threshold, best, single):
            return Stop(f"no remaining point is expected to improve by {threshold:.2%}")
        settled = self._stops_early and len(history.objectives) == 1 and is_settled(trials, single, initial)
        if settled and chance_of_any(expected.chance) < MAX_CHANCE:
            return Stop(STOPPED)
        return None

    def _pool(self, trials: list[Trial], history: History, rng: Random) -> _Pool:
        """The points that may give a new candidate, and all that is known of others."""
        if self._total > POOL:
            best = sorted(trials, key=lambda trial: rank_key(trial.feedback, history.objectives))[:BEST]
            new = sample(self._chains, history, list(map(_point_of, best)), rng)
            rows = self._features.rows([*new, *map(_point_of, trials)])
            return _Pool(new, rows[: len(new)], trials, rows[len(new) :])
        if self._table is None or self._rows is None:
            self._table = PointTable(self._chains)
            self._rows = self._features.rows(self._table.points)
        known = [self._table.rows[history.key(*_point_of(trial))] for trial in trials]
        free, repeats = self._table.split(known, history)
        known_trials = list(trials)
        for row, feedback in rng.sample(repeats, min(len(repeats), MAX_REPEATS)):
            known_trials.append(Trial(Proposal(UNASKED, *self._table.points[row]), feedback))
            known.append(row)
        return _Pool([self._table.points[row] for row in free], self._rows[free], known_trials, self._rows[known])


@dataclass(frozen=True)
class _Pool:
    """Points to choose from with their rows of features, and the trials to learn from with theirs."""

    points: list[tuple[str, Point]]
    rows: Array
    trials: list[Trial]
    known_rows: Array


def _point_of(trial: Trial) -> tuple[str, Point]:
    return trial.proposal.chain, trial.proposal.point
