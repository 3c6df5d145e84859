"""Chains: identity, inserted passes, cuts, weights and the points to try first."""

from __future__ import annotations

from typing import Any

import pytest
from dag_worlds import make_info

from autoopt.dag import Chain, Plan, compile_plan
from autoopt.registry import ParameterInfo, PassInfo
from autoopt.space import Categorical
from autoopt.spec import load_dag

MODE = ParameterInfo("mode", str, "plain", Categorical("plain"), withdrawn=(("fast", "needs AVX"),))
INFOS = {
    "p": make_info("p", 3),
    "q": make_info("q", 2, requires=("helper",)),
    "helper": make_info("helper", 2),
    "picky": PassInfo(
        "picky",
        "t",
        "s",
        (ParameterInfo("mode", str, "plain", Categorical("plain"), withdrawn=(("fast", "needs AVX"),)),),
    ),
}
PASSES = {"a": {"pass": "p", "params": "search"}, "b": {"pass": "q", "params": "search"}}


def plan_of(**fields: Any) -> Plan:
    dag = {"name": "d", "passes": PASSES, "chains": [["a", "b"], ["a"]], **fields}
    return compile_plan(load_dag(dag), INFOS.__getitem__)


def chains_of(**fields: Any) -> dict[str, Chain]:
    return {chain.name: chain for chain in plan_of(**fields).chains()}


def test_inserted_passes_take_their_defaults_and_are_not_part_of_the_name() -> None:
    chain = chains_of()["a -> b"]
    assert [(node.id, node.pass_name, node.inserted) for node in chain.nodes] == [
        ("a", "p", False),
        ("helper", "helper", True),
        ("b", "q", False),
    ]
    assert chain.passes == ("a", "b")
    assert chain.nodes[1].space.config({}) == {"v": 0}
    assert chain.points == 6


def test_an_inserted_pass_avoids_the_ids_of_the_user() -> None:
    passes = {"helper": "p", "b": "q"}
    chain = chains_of(passes=passes, chains=[["helper", "b"]])["helper -> b"]
    assert [node.id for node in chain.nodes] == ["helper", "helper.inserted", "b"]


def test_the_id_depends_on_passes_and_spaces_and_on_nothing_else() -> None:
    chain = chains_of()["a -> b"]
    same = [
        chains_of(chains=[["a", "b"]]),
        chains_of(forbid=[{"values": {"a": {"v": 0}}}]),
        chains_of(weights={"a -> b": 3.0}, name="other"),
    ]
    assert {others["a -> b"].id for others in same} == {chain.id}
    narrower = {**PASSES, "a": {"pass": "p", "params": {"v": {"search": [0, 1]}}}}
    fixed = {**PASSES, "a": {"pass": "p", "params": {"v": 1}}}
    ids = {chains_of(passes=passes)["a -> b"].id for passes in (narrower, fixed)}
    assert len(ids | {chain.id}) == 3


def test_cuts_of_single_values_shrink_the_nodes_and_cuts_across_nodes_stay() -> None:
    single, across = {"a": {"v": 2}}, {"a": {"v": 0}, "b": {"v": 1}}
    chains = chains_of(forbid=[{"values": single, "reason": "slow"}, {"values": across}])
    both, alone = chains["a -> b"], chains["a"]
    assert (both.points_before, both.points) == (6, 3)
    assert (alone.points_before, alone.points) == (3, 2)
    assert [(cut.node, cut.param, cut.value, cut.beside) for cut in both.cuts] == [
        ("a", "v", 2, {}),
        ("b", "v", 1, {"a": {"v": 0}}),
    ]
    assert [cut.value for cut in alone.cuts] == [2], "a cut that names b is not about this chain"
    assert all(chain.space.allows(point) for chain in chains.values() for point in chain.space.iterate())


@pytest.mark.parametrize(
    ("fields", "weight"),
    [
        ({}, 1.0),
        ({"prefer": [{"nodes": ["b"], "weight": 3.0}]}, 3.0),
        ({"prefer": [{"nodes": ["b"], "weight": 3.0}, "a -> b"]}, 6.0),
        ({"weights": {"a -> b": 0.5}, "prefer": ["a -> b"]}, 1.0),
        ({"weights": {"a->b": 4.0}}, 4.0),
        ({"prefer": ["a"]}, 1.0),
    ],
)
def test_weights_multiply(fields: dict[str, Any], weight: float) -> None:
    assert chains_of(**fields)["a -> b"].weight == pytest.approx(weight)


def test_a_weight_can_name_the_id_of_a_chain() -> None:
    chain = chains_of()["a"]
    assert chains_of(weights={chain.id: 7.0})["a"].weight == 7.0


def test_preferred_values_give_the_first_point_that_has_them() -> None:
    chains = chains_of(prefer=[{"values": {"a": {"v": 2}}}, {"values": {"a": {"v": 1}, "b": {"v": 1}}}])
    assert chains["a -> b"].prior == ({"a": {"v": 2}, "b": {"v": 0}}, {"a": {"v": 1}, "b": {"v": 1}})
    assert chains["a"].prior == ({"a": {"v": 2}},)


def test_preferred_values_that_are_cut_give_no_point() -> None:
    values = {"a": {"v": 1}, "b": {"v": 1}}
    assert chains_of(prefer=[{"values": values}], forbid=[{"values": values}])["a -> b"].prior == ()
    assert chains_of(prefer=[{"values": {"a": {"v": 1}}}], forbid=[{"values": {"a": {"v": 1}}}])["a"].prior == ()


def test_values_that_the_accelerator_cannot_use_are_listed_as_cut() -> None:
    for params in ("search", {"mode": {"search": ["plain"]}}, {"mode": "search"}):
        passes = {"a": {"pass": "picky", "params": params}}
        chain = chains_of(passes=passes, chains=[["a"]])["a"]
        expected = [] if params == {"mode": {"search": ["plain"]}} else [("mode", "fast", "needs AVX")]
        assert [(cut.param, cut.value, cut.reason) for cut in chain.cuts] == expected
        assert chain.points == 1


def test_hosts_come_from_the_node_or_the_whole_dag() -> None:
    host, own = {"type": "python_env", "python": "/usr/bin/python3"}, {"type": "python_env", "python": "/bin/python3"}
    chains = chains_of(host=host, passes={**PASSES, "b": {"pass": "q", "host": own}})
    assert [node.host.python for node in chains["a -> b"].nodes] == [
        "/usr/bin/python3",
        "/usr/bin/python3",
        "/bin/python3",
    ]
