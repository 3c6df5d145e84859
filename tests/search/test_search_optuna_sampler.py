"""Optuna's samplers, and points as parameters of Optuna trials."""

from __future__ import annotations

from importlib.util import find_spec

import optuna
import pytest
from search_cases import LATENCY, MIDDLE, SIX, chain, drive, measure

from autoopt.search import ChainSpace, Feedback, SearchConfig, create_study
from autoopt.search.samplers.base import SamplerInputs
from autoopt.search.samplers.optuna_sampler import OptunaSampler, params_of, suggest_chain, suggest_point
from autoopt.space import Categorical, Integer, NodeSpace, SearchSpace
from autoopt.spec.search import OPTUNA, SAMPLERS

LISTED = [sampler for sampler in SAMPLERS if sampler.implementation == OPTUNA]
OF_OPTUNA = [sampler.name for sampler in LISTED if all(map(find_spec, sampler.requires))]


def made(name: str, seed: int) -> optuna.samplers.BaseSampler:
    config = SearchConfig(strategy="per-chain", sampler=name)
    return OptunaSampler(SamplerInputs(config, SIX[:1], LATENCY, 24)).create(seed)


def test_every_asked_trial_of_the_study_is_told() -> None:
    strategy = create_study(SearchConfig(sampler="tpe", trials=40), MIDDLE, LATENCY)
    drive(strategy, limit=40)
    strategy.sampler.sync(strategy.history)
    study = strategy.sampler.study
    running = [t for t in study.trials if t.state is optuna.trial.TrialState.RUNNING]
    assert len(running) == sum(t.feedback is None for t in strategy.trials)
    dropped = [t for t in study.trials if "dropped" in t.user_attrs]
    assert len(study.trials) == 40 + len(dropped)
    assert all(t.state is optuna.trial.TrialState.FAIL for t in dropped)


def test_trials_proposed_by_others_are_learnt_from() -> None:
    first = create_study(SearchConfig(strategy="per-chain", sampler="random", trials=30), MIDDLE, LATENCY)
    drive(first)
    second = create_study(SearchConfig(sampler="tpe"), MIDDLE, LATENCY)
    second.restore(first.trials)
    second.ask()
    numbers = [t.user_attrs.get("trial") for t in second.sampler.study.trials]
    assert numbers[:30] == list(range(30))


def test_what_stopped_early_is_pruned_and_keeps_its_violation() -> None:
    strategy = create_study(SearchConfig(sampler="tpe", trials=6), SIX, LATENCY)
    drive(strategy, outcome=lambda p: Feedback(violation=0.3) if p.number == 0 else measure(p))
    strategy.sampler.sync(strategy.history)
    first = strategy.sampler.study.trials[0]
    assert first.state is optuna.trial.TrialState.PRUNED
    assert first.constraints == {"violation": 0.3}


@pytest.mark.parametrize("name", OF_OPTUNA)
def test_every_listed_sampler_is_created_and_can_learn(name: str) -> None:
    sampler = made(name, 0)
    assert isinstance(sampler, getattr(optuna.samplers, name))
    study = optuna.create_study(sampler=sampler)
    for _ in range(12):  # the default sampler begins to learn after 10 trials
        trial = study.ask()
        study.tell(trial, trial.suggest_float("x", 0, 1, step=0.1) + trial.suggest_int("y", 0, 5))
    assert study.best_value >= 0


def test_the_seed_decides_what_a_sampler_proposes() -> None:
    def first_value(seed: int) -> float:
        study = optuna.create_study(sampler=made("RandomSampler", seed))
        return study.ask().suggest_float("x", 0, 1)

    assert first_value(1) == first_value(1) != first_value(2)


def single(**parameters: object) -> ChainSpace:
    return ChainSpace("one", (("n", "p"),), SearchSpace({"n": NodeSpace(parameters)}))


@pytest.mark.parametrize("chains", [SIX, MIDDLE], ids=["six", "middle"])
def test_every_point_survives_the_way_through_a_trial(chains: tuple[ChainSpace, ...]) -> None:
    for one in chains:
        for point in one.space.iterate():
            params = params_of(one, point)
            trial = optuna.trial.FixedTrial(params)
            assert suggest_point(trial, one) == point
            assert set(trial.distributions) == set(params)
            assert all(name.split(".")[0] in one.nodes for name in params)


def asked(one: ChainSpace, value: object) -> optuna.distributions.BaseDistribution:
    trial = optuna.trial.FixedTrial(params_of(one, {"n": {"x": value}}))
    suggest_point(trial, one)
    return next(iter(trial.distributions.values()))


def test_evenly_rising_whole_numbers_are_a_range_and_other_values_are_categories() -> None:
    assert asked(single(x=Integer(2, 8, step=2)), 4) == optuna.distributions.IntDistribution(2, 8, step=2)
    for values in ((1, 2, 4), (3, 2, 1), (1, 2), (1.0, 2.0, 3.0)):
        uneven = asked(single(x=Categorical(*values)), values[0])
        assert uneven == optuna.distributions.CategoricalDistribution(values)


def test_lists_and_booleans_beside_numbers_are_told_apart() -> None:
    mixed = single(x=Categorical(True, 1, [1]))
    encoded = [list(params_of(mixed, {"n": {"x": value}}).values()) for value in (True, 1, [1])]
    assert encoded == [["true"], ["1"], ["[1]"]]


def test_one_chain_is_not_asked_for() -> None:
    trial = optuna.trial.FixedTrial({"chain": "b"})
    assert suggest_chain(trial, ["a"]) == "a"
    assert suggest_chain(trial, ["a", "b"]) == "b"


def test_values_that_depend_on_parents_have_names_with_the_parents() -> None:
    wide = chain("wide")
    names = set()
    for point in wide.space.iterate():
        names |= {name.split("=")[0] for name in params_of(wide, point) if name.startswith("wide.method")}
    assert names == {"wide.method@true", "wide.method@false"}
