"""The contract that every strategy keeps, over all of them."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace

import pytest
from search_cases import BOTH, LATENCY, MIDDLE, SIX, best_value, chain, drive, found, in_batches, measure, text

from autoopt.errors import InputError
from autoopt.search import Feedback, Proposal, SearchConfig, create_study
from autoopt.space import Categorical, NodeSpace, SearchSpace
from autoopt.spec.search import DEFAULT_SAMPLER, OPTUNA, SAMPLERS, short_name

OWN = tuple(info.name for info in SAMPLERS if info.implementation != OPTUNA and "per-chain" in info.strategies)
PER_CHAIN = {
    f"{sampler}, {allocation}": SearchConfig(strategy="per-chain", sampler=sampler, allocation=allocation)
    for sampler, allocation in (
        *((sampler, "round_robin") for sampler in (*OWN, "tpe", "NSGAIISampler")),
        *((sampler, "max_ucb") for sampler in ("surrogate", "tpe")),
        ("random", "sequential"),
        ("random", "successive_halving"),
    )
}
ORDERED = {
    f"{sampler}, {order}": SearchConfig(strategy="per-chain", sampler=sampler, order=order, keep=keep)
    for sampler, order, keep in (("random", "pass-by-pass", 1), ("surrogate", "pass-by-pass", 2))
}
UNIFIED = {
    f"unified {short_name(info)}": SearchConfig(sampler=info.name)
    for info in SAMPLERS
    if "unified" in info.strategies and info.name != DEFAULT_SAMPLER["unified"]
}
ALL = {"unified": SearchConfig(), **UNIFIED, **PER_CHAIN, **ORDERED}
WHOLE = {name: config for name, config in ALL.items() if config.order == "joint"}


def made(config: SearchConfig, chains=MIDDLE, *, trials: int | None = 24, objectives=LATENCY, **options):
    return create_study(
        config.overridden({"trials": trials, "seed": 3, "stop_early": False}), chains, objectives, **options
    )


@pytest.mark.parametrize("name", ALL)
def test_proposes_valid_points_never_one_twice_and_keeps_the_budget(name: str) -> None:
    strategy = made(ALL[name])
    asked = drive(strategy)
    assert len(asked) <= 24
    assert [p.number for p in asked] == list(range(len(asked)))
    assert len({text(p) for p in asked}) == len(asked)
    by_id = {c.id: c for c in MIDDLE}
    for proposal in asked:
        if proposal.upto is None:
            by_id[proposal.chain].space.configs(proposal.point)
    assert strategy.finished


@pytest.mark.parametrize("name", WHOLE)
def test_goes_through_the_whole_space_and_says_so(name: str) -> None:
    strategy = made(WHOLE[name], SIX, trials=None)
    asked = drive(strategy)
    assert len({text(p) for p in asked}) == len(asked) == 24
    assert "tried" in (strategy.finished or "")
    assert found(asked) == best_value(SIX)


@pytest.mark.parametrize("chains", [SIX, MIDDLE], ids=["six", "middle"])
@pytest.mark.parametrize("name", ALL)
def test_resumed_search_asks_what_the_uninterrupted_one_asks(name: str, chains) -> None:
    whole = drive(made(ALL[name], chains, trials=14), window=3)
    for cut in (2, 11):
        first = made(ALL[name], chains, trials=14)
        drive(first, window=3, limit=cut)
        second = made(ALL[name], chains, trials=14)
        second.restore(first.trials)
        running = [t for t in second.trials if t.feedback is None]
        assert whole[:cut] == [replace(t, feedback=None) for t in second.trials]
        rest = continue_window(second, running, 3)
        assert [replace(t, feedback=None) for t in second.trials] == whole, f"cut after {cut}: {len(rest)} more"


def continue_window(strategy, running, window: int):
    """Carry on with `running` trials already under way, as the interrupted driver would have."""
    rest = []
    while True:
        new = strategy.ask(1) if len(running) < window else []
        rest += new
        running += new
        if not new:
            if not running:
                return rest
            first = running.pop(0)
            strategy.tell(first.number, measure(first))


@pytest.mark.parametrize("name", ALL)
def test_order_of_telling_within_a_batch_does_not_matter(name: str) -> None:
    backwards = in_batches(made(ALL[name]), 4)
    strategy = made(ALL[name])
    forwards = []
    while batch := strategy.ask(4):
        forwards += batch
        for proposal in batch:
            strategy.tell(proposal.number, measure(proposal))
    assert forwards == backwards


@pytest.mark.parametrize("name", ALL)
def test_failures_are_values(name: str) -> None:
    strategy = made(ALL[name], trials=16)
    asked = drive(strategy, outcome=lambda p: Feedback(failed=True) if p.number % 2 == 0 else measure(p))
    assert asked
    assert strategy.finished
    everything_fails = drive(made(ALL[name], trials=16), outcome=lambda p: Feedback(failed=True))
    assert everything_fails


def only_the_first(proposal: Proposal) -> Feedback:
    return measure(proposal) if proposal.number == 0 else Feedback(failed=True)


def one_then_missing(proposal: Proposal) -> Feedback:
    return Feedback({"latency_p50": 1.0} if proposal.number == 1 else {}, violation=1.0)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    "outcome",
    [
        only_the_first,
        one_then_missing,
        lambda p: Feedback({"latency_p50": 1.0}, violation=0.0),
        lambda p: Feedback({"latency_p50": math.nan}, violation=math.nan),
        lambda p: Feedback({"latency_p50": math.inf if p.number % 2 else 1.0 + p.number}, violation=math.inf),
        lambda p: Feedback({"latency_p50": 10.0 ** (300 - 40 * (p.number % 9))}, violation=(-1) ** p.number * 1e308),
        lambda p: Feedback({"latency_p50": -(10.0 ** (300 - p.number))}),
    ],
    ids=["one success", "no values", "equal", "nan", "infinite", "huge", "negative"],
)
def test_learns_from_any_results(name: str, outcome) -> None:
    study = made(ALL[name], SIX, trials=15)
    asked = drive(study, outcome=outcome)
    assert len({text(p) for p in asked}) == len(asked) >= 3
    assert study.finished


@pytest.mark.parametrize("name", ["unified", "unified tpe", "random, round_robin", "tpe, max_ucb"])
def test_another_seed_asks_other_points(name: str) -> None:
    asked = [
        [text(p) for p in drive(create_study(ALL[name].overridden({"seed": s, "trials": 20}), MIDDLE, LATENCY))]
        for s in (1, 2)
    ]
    assert asked[0] != asked[1]


@pytest.mark.parametrize("name", ["unified", "unified tpe", "tpe, round_robin", "surrogate, max_ucb"])
def test_several_objectives(name: str) -> None:
    asked = drive(made(ALL[name], objectives=BOTH))
    assert len(asked) == 24


def test_stops_when_the_goals_are_met() -> None:
    strategy = create_study(SearchConfig(stop_when_goals_met=True), MIDDLE, LATENCY)
    asked = drive(strategy, outcome=lambda p: Feedback({"latency_p50": 1.0}, violation=5 - p.number))
    assert len(asked) == 6
    assert strategy.finished == "all constraints met"


def test_a_failed_trial_meets_no_goal() -> None:
    strategy = create_study(SearchConfig(stop_when_goals_met=True, trials=5), MIDDLE, LATENCY)
    assert len(drive(strategy, outcome=lambda p: Feedback(failed=True, violation=-1))) == 5


@pytest.mark.parametrize("chains", [SIX, MIDDLE], ids=["six", "middle"])
def test_stops_when_no_improvement_is_expected(chains) -> None:
    strategy = create_study(SearchConfig(min_expected_improvement=0.05), chains, LATENCY)
    asked = drive(strategy, outcome=lambda p: Feedback({"latency_p50": 1.0 + 0.001 * (p.number % 3)}))
    assert 10 <= len(asked) < min(60, sum(c.space.count for c in chains))
    assert "expected to improve" in (strategy.finished or "")


def test_random_with_replacement_repeats() -> None:
    config = SearchConfig(strategy="per-chain", sampler="random", with_replacement=True, trials=20)
    asked = drive(create_study(config, [chain("pass4")], LATENCY))
    assert len(asked) == 20
    assert len({text(p) for p in asked}) == 2


def test_equal_parameter_names_in_two_passes_do_not_mix() -> None:
    """A search that mixed them would reach only the diagonal of the nine points."""
    twice = chain("pass2", "pass5")
    for config in (
        SearchConfig(strategy="per-chain", sampler="tpe"),
        SearchConfig(sampler="tpe"),
        SearchConfig(stop_early=False),
    ):
        asked = drive(create_study(config, [twice], LATENCY))
        assert len({(p.point["pass2"]["mode"], p.point["pass5"]["mode"]) for p in asked}) == 9


@pytest.mark.parametrize("name", ALL)
def test_chains_that_share_a_node_may_search_different_values_of_it(name: str) -> None:
    whole, less = chain("pass1", "pass2"), chain("pass2")
    less = replace(less, space=SearchSpace({"pass2": NodeSpace({"mode": Categorical("b", "c", "d")})}))
    study = made(ALL[name], [whole, less], trials=None)
    asked = [proposal for proposal in drive(study) if proposal.upto is None]
    assert {proposal.point["pass2"]["mode"] for proposal in asked if proposal.chain == less.id} <= set("bcd")
    assert study.finished


def test_prior_points_come_first() -> None:
    wanted = {"pass2": {"mode": "c"}, "wide": {"bits": 5, "signed": False, "method": "z", "block": [4]}}
    asked = drive(create_study(SearchConfig(trials=5), [chain("pass2", "wide", prior=(wanted,)), *MIDDLE[2:]], LATENCY))
    assert asked[0].point == wanted


def test_prior_point_must_be_of_the_space() -> None:
    with pytest.raises(InputError, match="not a point"):
        create_study(SearchConfig(), [chain("pass2", prior=({"pass2": {"mode": "q"}},))], LATENCY)


@pytest.mark.parametrize(
    ("chains", "objectives", "config", "words"),
    [
        ([], LATENCY, SearchConfig(), "no chain"),
        (SIX, (), SearchConfig(), "no objective"),
        ([SIX[0], SIX[0]], LATENCY, SearchConfig(), "the same id"),
        (SIX, LATENCY, SearchConfig(strategy="per-chain", order=["pass1", "pas5"]), "did you mean 'pass5'"),
        (SIX, LATENCY, SearchConfig(strategy="per-chain", order=["pass5", "pass1"]), "and after it in a chain"),
    ],
)
def test_refuses_what_cannot_be_searched(chains, objectives, config, words) -> None:
    with pytest.raises(InputError, match=words):
        create_study(config, chains, objectives)


def test_telling_what_was_never_asked_is_a_mistake() -> None:
    strategy = made(SearchConfig())
    with pytest.raises(ValueError, match="never asked"):
        strategy.tell(0, Feedback())
    (proposal,) = strategy.ask()
    strategy.tell(proposal.number, Feedback({"latency_p50": 1.0}))
    with pytest.raises(ValueError, match="has a result already"):
        strategy.tell(proposal.number, Feedback())
    with pytest.raises(ValueError, match="first ask"):
        strategy.restore([])


def test_restored_trials_are_numbered() -> None:
    strategy = made(SearchConfig())
    with pytest.raises(ValueError, match="cannot follow"):
        strategy.restore(made(SearchConfig()).ask(2)[1:])


def test_unified_finds_the_best_where_random_does_not() -> None:
    two = MIDDLE[:2]
    best = best_value(two)
    unified = [
        found(drive(create_study(SearchConfig(trials=30, seed=s, stop_early=False), two, LATENCY))) for s in range(3)
    ]
    random = SearchConfig(strategy="per-chain", sampler="random", trials=30)
    drawn = [found(drive(create_study(random.overridden({"seed": s}), two, LATENCY))) for s in range(9)]
    assert max(unified) <= best * 1.02
    assert max(unified) < sorted(drawn)[5]


def test_a_search_loads_no_library_of_machine_learning() -> None:
    code = (
        "import sys; from search_cases import *; from autoopt.search import *;"
        "drive(create_study(SearchConfig(), SIX, LATENCY));"
        "print(sorted(m for m in ('sklearn', 'scipy', 'optuna') if m in sys.modules))"
    )
    path = f"import sys; sys.path.insert(0, {str(__file__).rsplit('/', 1)[0]!r});"
    shown = subprocess.run([sys.executable, "-c", path + code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
