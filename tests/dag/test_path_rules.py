"""The rules along a path: states, steps that prune, and the end of a chain."""

from __future__ import annotations

from typing import Any

import pytest
from dag_worlds import World, make_info, worlds
from hypothesis import given, settings

from autoopt.dag.compiler.cut_counts import CutCounter
from autoopt.dag.compiler.path_rules import PathRules, State
from autoopt.dag.compiler.pruning import Facts, Reason
from autoopt.dag.compiler.requirements import Requirements
from autoopt.dag.graph.pass_graph import build_graph
from autoopt.dag.graph.priors import Cut, Scope, user_priors
from autoopt.registry import PassInfo
from autoopt.space import Categorical, NodeSpace
from autoopt.spec import load_dag

SPACE = NodeSpace({"v": Categorical(0, 1)})
INFOS = {
    "a": make_info("a"),
    "b": make_info("b"),
    "c": make_info("c", conflicts=("a",)),
    "d": make_info("d", requires=("helper",)),
    "helper": make_info("helper"),
    "e": make_info("e", requires=("nobody",)),
}


def rules_of(
    chains: list[list[str]], cuts: list[Cut] | None = None, verdicts: dict[str, Reason] | None = None, **priors: Any
) -> PathRules:
    nodes = list(dict.fromkeys(node for chain in chains for node in chain))
    spec = load_dag({"name": "d", "passes": nodes, "chains": chains, **priors})
    counter = CutCounter(cuts or [], dict.fromkeys(nodes, SPACE))

    def look_up(name: str) -> PassInfo:
        return INFOS[name] if name in INFOS else World({}, {}).info(name)

    infos = {node: INFOS[node] for node in nodes}
    return PathRules(
        build_graph(spec), infos, verdicts or {}, Requirements(look_up, Facts()), user_priors(spec), counter
    )


def walk(rules: PathRules, *keys: str) -> State:
    state = rules.start()
    for key in keys:
        step = rules.advance(state, key)
        assert isinstance(step, State), step
        state = step
    return state


def test_a_verdict_ends_every_chain_with_its_node() -> None:
    reason = Reason("level", "b: level 0 allows only lossless passes")
    rules = rules_of([["a", "b"]], verdicts={"b": reason})
    assert rules.advance(walk(rules, "a"), "b") is reason


def test_a_conflict_looks_back_and_not_ahead() -> None:
    rules = rules_of([["a", "c"]])
    assert rules.advance(walk(rules, "a"), "c") == Reason("conflicts", "c (c) conflicts with a, which runs earlier")
    rules = rules_of([["c", "a"]])
    assert rules.finish(walk(rules, "c", "a")) is None


def test_required_passes_are_inserted_or_end_the_chain() -> None:
    rules = rules_of([["d"], ["e"]])
    inserted, problem = rules.inserted("d", frozenset())
    assert ([info.name for info in inserted], problem) == (["helper"], "")
    step = rules.advance(rules.start(), "e")
    assert isinstance(step, Reason)
    assert (step.rule, "cannot be inserted: unknown pass 'nobody'" in step.text) == ("requires", True)


def test_the_state_forgets_passes_that_matter_to_no_later_one() -> None:
    rules = rules_of([["a", "b"]])
    assert walk(rules, "a").present == frozenset()
    rules = rules_of([["a", "b", "c"]])
    assert walk(rules, "a", "b").present == {"a"}


@pytest.mark.parametrize(
    ("priors", "path", "reason"),
    [
        ({"forbid": ["a -> b"]}, ("a", "b"), Reason("forbid", "excluded by 'forbid'")),
        ({"forbid": [{"nodes": ["b"], "reason": "slow"}]}, ("a", "b"), Reason("forbid", "excluded by 'forbid': slow")),
        ({"forbid": [{"nodes": ["b"]}]}, ("a",), None),
        (
            {"require": [{"nodes": ["b"]}]},
            ("a",),
            Reason("require", "excluded by 'require' (chains with b)"),
        ),
        ({"require": ["a -> b", "b"]}, ("a", "b"), None),
        (
            {"require": ["a -> b", "b"]},
            ("a",),
            Reason("require", "excluded by 'require' (only a -> b or b)"),
        ),
        ({"require": [{"nodes": ["b"]}], "forbid": ["a"]}, ("a",), Reason("forbid", "excluded by 'forbid'")),
        ({"prefer": ["a -> b"]}, ("a",), None),
    ],
)
def test_the_end_of_a_chain_decides_about_priors(
    priors: dict[str, Any], path: tuple[str, ...], reason: Reason | None
) -> None:
    rules = rules_of([["a", "b"], ["a"], ["b"]], **priors)
    assert rules.finish(walk(rules, *path)) == reason


def test_cuts_end_a_chain_that_loses_its_last_point() -> None:
    both = [Cut(Scope(), {"a": {"v": value}}, "") for value in (0, 1)]
    rules = rules_of([["a"]], both)
    assert rules.advance(rules.start(), "a") == Reason("cut", "a: every search point is excluded")
    of_chain = [Cut(Scope(chain=("a", "b")), {"a": {"v": value}}, "") for value in (0, 1)]
    rules = rules_of([["a", "b"], ["a"]], of_chain)
    assert rules.finish(walk(rules, "a")) is None
    assert rules.finish(walk(rules, "a", "b")) == Reason("cut", "every search point is excluded")


def test_points_that_complete_a_cut_of_the_chain_do_not_count() -> None:
    rules = rules_of([["a", "b"], ["a"]], [Cut(Scope(nodes=frozenset("b")), {"a": {"v": 0}}, "")])
    counts = rules.counter.extend({frozenset(): 1}, "a")
    assert rules.point_count(counts, walk(rules, "a")) == 2
    both = rules.counter.extend(counts, "b")
    assert rules.point_count(both, walk(rules, "a", "b")) == 2


@given(worlds())
@settings(max_examples=60)
def test_states_that_are_equal_have_the_same_futures(world: World) -> None:
    spec = load_dag(world.dag)
    graph = build_graph(spec)
    infos = {node: world.info(item.pass_name) for node, item in spec.passes.items()}
    counter = CutCounter([], {node: NodeSpace() for node in infos})
    rules = PathRules(graph, infos, {}, Requirements(world.info, Facts()), user_priors(spec), counter)

    def futures(state: State, key: str) -> list[object]:
        ends: list[object] = []
        for after in graph.successors(key):
            if after == "<end>":
                ends.append(rules.finish(state))
                continue
            step = rules.advance(state, after)
            ends.append((after, step if isinstance(step, Reason) else futures(step, after)))
        return ends

    seen: dict[tuple[str, State], list[object]] = {}
    pending = [("<start>", rules.start())]
    while pending and len(seen) < 200:
        key, state = pending.pop()
        ahead = futures(state, key)
        assert seen.setdefault((key, state), ahead) == ahead
        for after in graph.successors(key):
            if after != "<end>":
                step = rules.advance(state, after)
                if isinstance(step, State):
                    pending.append((after, step))
