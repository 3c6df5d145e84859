"""Counts by dynamic programming equal those of going through every chain; listing is lazy and in order."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
from dag_worlds import World, all_paths, make_info, slowly, worlds
from hypothesis import given, settings

from autoopt.dag import compile_plan
from autoopt.dag.compiler import prefix_tree
from autoopt.errors import InputError
from autoopt.spec import load_dag


@given(worlds())
@settings(max_examples=50)
def test_counts_equal_those_of_going_through_every_chain(world: World) -> None:
    slow = slowly(world)
    plan = compile_plan(load_dag(world.dag), world.info)
    assert plan.chain_count == len(slow.kept)
    assert plan.point_count == sum(slow.kept.values())
    assert plan.points_before == slow.before
    assert plan.pruned_count == sum(plan.pruned_by_rule.values()) == slow.pruned
    assert plan.prefix_nodes == len({path[:n] for path in slow.kept for n in range(1, len(path) + 1)})
    assert {(i.pass_name, i.before) for i in plan.inserted} == slow.inserted


@given(worlds())
@settings(max_examples=75)
def test_listing_gives_exactly_the_counted_chains(world: World) -> None:
    slow = slowly(world)
    plan = compile_plan(load_dag(world.dag), world.info)
    chains = list(plan.chains())
    assert {c.passes: c.points for c in chains} == slow.kept
    assert len({c.id for c in chains}) == len(chains)
    assert sum(c.points_before for c in chains) == slow.before
    for chain in chains:
        assert len(list(chain.space.iterate())) == chain.points
    pruned = [tuple(p.name.split(" -> ")) for p in plan.pruned()]
    assert sorted([*pruned, *slow.kept]) == sorted(all_paths(world.dag))


def big(stages: int, **more: Any) -> dict[str, Any]:
    passes = {f"n{i}": {"pass": "p", "params": "search"} for i in range(2 * stages)}
    return {"name": "big", "passes": passes, "stages": [[f"n{2 * i}", f"n{2 * i + 1}"] for i in range(stages)], **more}


def test_more_chains_than_anyone_could_list_are_counted_exactly_and_listed_lazily() -> None:
    plan = compile_plan(load_dag(big(110)), lambda name: make_info(name, 3))
    assert plan.chain_count == 2**110 > 10**33
    assert plan.point_count == 6**110
    assert plan.prefix_nodes == 2**111 - 2
    first = list(islice(plan.chains(), 3))
    assert [c.passes[-1] for c in first] == ["n218", "n219", "n218"]
    assert len(plan.to_json(limit=5)["chains"]) == 5


def test_pruned_chains_are_counted_and_listed_lazily_too() -> None:
    plan = compile_plan(load_dag(big(110, forbid=[{"nodes": ["n0", "n2"]}])), lambda name: make_info(name))
    assert plan.pruned_by_rule == {"forbid": 2**108}
    assert plan.chain_count == 2**110 - 2**108
    assert next(iter(plan.pruned())).rule == "forbid"
    assert next(plan.chains()).passes[:2] == ("n0", "n3")


def test_a_needle_among_pruned_chains_is_found_at_once() -> None:
    wanted = [{"nodes": [f"n{2 * i}" for i in range(60)]}]
    plan = compile_plan(load_dag(big(60, require=wanted)), lambda name: make_info(name))
    assert plan.chain_count == 1
    assert len(list(plan.chains())) == 1


def test_too_many_situations_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefix_tree, "MAX_STATES", 100)
    conflicts = {f"q{i}": make_info(f"q{i}") for i in range(24)}
    last = make_info("last", conflicts=tuple(conflicts))
    passes = {f"n{i}": f"q{i}" for i in range(24)} | {"last": "last"}
    dag = {"name": "d", "passes": passes, "stages": [*([f"n{i}", None] for i in range(24)), "last"]}
    with pytest.raises(InputError, match="more than 100 states"):
        compile_plan(load_dag(dag), lambda name: {**conflicts, "last": last}[name])
