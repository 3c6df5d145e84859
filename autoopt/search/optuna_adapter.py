"""The unified search as an Optuna sampler, and trials as an Optuna study. Importing it loads Optuna."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.trial import FrozenTrial, TrialState

from autoopt.metrics import Objective
from autoopt.search.factory import create_sampler
from autoopt.search.history import History
from autoopt.search.optuna_study.encoding import (
    CHAIN,
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
    """Expected improvement over chains and parameters together, by a Gaussian process and a random forest in turn:

        sampler = OptunaSurrogateSampler(chains, objectives, trials=40)
        study = optuna.create_study(sampler=sampler)
        study.optimize(lambda trial: measure(*sampler.suggest(trial)), n_trials=40)

    `suggest` gives the chain id and the point of a trial. Constraints are those of `trial.set_constraint`. Once every
    point was asked, parameters are drawn at random.
    """

    def __init__(
        self, chains: Sequence[ChainSpace], objectives: Sequence[Objective], *, trials: int | None = None, seed: int = 0
    ) -> None:
        self._chains = {chain.id: chain for chain in chains}
        self._objectives = tuple(objectives)
        self._seed = seed
        self._chooser = create_sampler(SearchConfig(trials=trials, seed=seed), chains, objectives)
        self._random = optuna.samplers.RandomSampler(seed)
        self._chosen: dict[int, tuple[str, Point]] = {}

    def suggest(self, trial: optuna.Trial) -> tuple[str, Point]:
        """The chain and point of a trial.

        Raises:
            optuna.TrialPruned: the space was used up, and what was drawn at random is not a valid point.
        """
        chain = suggest_chain(trial, list(self._chains))
        point = suggest_point(trial, self._chains[chain])
        if point is None:
            raise optuna.TrialPruned("not a valid point")
        return chain, point

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        history = self._history(study, trial.number)
        answer = self._chooser.next(history, Random(f"{self._seed}:{trial.number}"))
        if not isinstance(answer, Suggestion):
            return {}
        self._chosen[trial.number] = (answer.chain, answer.point)
        of_chain = {CHAIN: CategoricalDistribution(list(self._chains))} if len(self._chains) > 1 else {}
        return {**of_chain, **distributions_of(self._chains[answer.chain], answer.point)}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        if not search_space:
            return {}
        chain, point = self._chosen.pop(trial.number)
        return {**({CHAIN: chain} if CHAIN in search_space else {}), **params_of(self._chains[chain], point)}

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        return self._random.sample_independent(study, trial, param_name, param_distribution)

    def _history(self, study: optuna.Study, before: int) -> History:
        """The study's trials that stand for points, as the chooser knows them."""
        history = History(tuple(self._chains.values()), self._objectives)
        for frozen in study.get_trials(deepcopy=False):
            place = self._place(frozen.params) if frozen.number != before else None
            if place is None or history.find(*place) is not None:
                continue
            number = len(history.trials)
            history.add(Proposal(number, *place))
            if frozen.state.is_finished():
                history.tell(number, self._feedback(frozen))
        return history

    def _place(self, params: Mapping[str, Any]) -> tuple[str, Point] | None:
        chain: Any = params.get(CHAIN) if len(self._chains) > 1 else next(iter(self._chains))
        if chain not in self._chains:
            return None
        point = read_point(self._chains[chain], params)
        return None if point is None else (chain, point)

    def _feedback(self, frozen: FrozenTrial) -> Feedback:
        broken = list(frozen.constraints.values())
        values = frozen.values if frozen.state is TrialState.COMPLETE else None
        named = {o.metric: v for o, v in zip(self._objectives, values or (), strict=False)}
        return Feedback(named, max(broken, default=0.0), failed=not named and max(broken, default=0.0) <= 0)
