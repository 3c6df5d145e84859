"""The surrogate search as an Optuna sampler. Importing this module loads Optuna."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.trial import FrozenTrial, TrialState

from autoopt.metrics import Objective
from autoopt.search.factory import create_sampler
from autoopt.search.history import History
from autoopt.search.optuna_study.encoding import (
    CHAIN,
    Params,
    distributions_of,
    params_of,
    read_point,
    suggest_chain,
    suggest_point,
)
from autoopt.search.samplers.base import Suggestion
from autoopt.search.trial import ChainSpace, Feedback, Proposal
from autoopt.space import Point
from autoopt.spec.search import SearchConfig


class OptunaSurrogateSampler(optuna.samplers.BaseSampler):
    """Expected improvement over chains and parameters together, for use in an Optuna study.

        sampler = OptunaSurrogateSampler(chains, objectives, trials=40)
        study = optuna.create_study(sampler=sampler)
        study.optimize(lambda trial: measure(*sampler.suggest(trial)), n_trials=40)

    `suggest` returns the chain id and the point of a trial. Constraints are those of `trial.set_constraint`. Once every
    point was asked, parameters are drawn at random.
    """

    def __init__(
        self, chains: Sequence[ChainSpace], objectives: Sequence[Objective], *, trials: int | None = None, seed: int = 0
    ) -> None:
        self._chains = {chain.id: chain for chain in chains}
        self._objectives = tuple(objectives)
        self._seed = seed
        self._sampler = create_sampler(SearchConfig(trials=trials, seed=seed, stop_early=False), chains, objectives)
        self._random = optuna.samplers.RandomSampler(seed)
        self._suggestions: dict[int, Suggestion] = {}

    def suggest(self, trial: optuna.Trial) -> tuple[str, Point]:
        """Return the chain and the point of a trial.

        Raises:
            optuna.TrialPruned: the space is used up, and what was drawn at random is not a valid point.
        """
        chain = suggest_chain(trial, list(self._chains))
        point = suggest_point(trial, self._chains[chain])
        if point is None:
            raise optuna.TrialPruned("not a valid point")
        return chain, point

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Decide on a point, and return the distributions of its parameters; called by Optuna."""
        history = self._history(study, trial.number)
        decision = self._sampler.next(history, Random(f"{self._seed}:{trial.number}"))
        if not isinstance(decision, Suggestion):
            return {}
        self._suggestions[trial.number] = decision
        space = distributions_of(self._chains[decision.chain], decision.point)
        if len(self._chains) > 1:
            space[CHAIN] = CategoricalDistribution(list(self._chains))
        return space

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> Params:
        """Return the parameters of the point; called by Optuna."""
        if not search_space:
            return {}
        suggestion = self._suggestions.pop(trial.number)
        params = params_of(self._chains[suggestion.chain], suggestion.point)
        if CHAIN in search_space:
            params[CHAIN] = suggestion.chain
        return params

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> object:
        """Draw a parameter at random; called by Optuna once every point was asked."""
        return self._random.sample_independent(study, trial, param_name, param_distribution)

    def _history(self, study: optuna.Study, before: int) -> History:
        """Convert the study's other trials that stand for points to a history."""
        history = History(tuple(self._chains.values()), self._objectives)
        for frozen in study.get_trials(deepcopy=False):
            if frozen.number == before:
                continue
            place = self._place(frozen.params)
            if place is None or history.find(*place) is not None:
                continue
            number = len(history.trials)
            history.add(Proposal(number, *place))
            if frozen.state.is_finished():
                history.tell(number, self._feedback(frozen))
        return history

    def _place(self, params: Mapping[str, object]) -> tuple[str, Point] | None:
        """Decode chain and point; None if the parameters do not stand for a point."""
        chain = next(iter(self._chains))
        if len(self._chains) > 1:
            chain = str(params.get(CHAIN))
        if chain not in self._chains:
            return None
        point = read_point(self._chains[chain], params)
        if point is None:
            return None
        return chain, point

    def _feedback(self, frozen: FrozenTrial) -> Feedback:
        violation = max(frozen.constraints.values(), default=0.0)
        values: dict[str, float] = {}
        if frozen.state is TrialState.COMPLETE:
            names = [objective.metric for objective in self._objectives]
            values = dict(zip(names, frozen.values, strict=False))
        return Feedback(values, violation, failed=not values and violation <= 0)
