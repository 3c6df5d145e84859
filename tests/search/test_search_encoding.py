"""Points as parameters of Optuna trials."""

from __future__ import annotations

import optuna
import pytest
from search_cases import MIDDLE, SIX, chain

from autoopt.search import ChainSpace
from autoopt.search.optuna_study.encoding import params_of, suggest_chain, suggest_point
from autoopt.space import Categorical, Integer, NodeSpace, SearchSpace


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
