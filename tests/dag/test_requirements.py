"""Passes looked up on the hosts that run them, and what they require."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from dag_worlds import World, make_info

from autoopt.dag import Plan, compile_plan
from autoopt.dag.compiler.rendering import tree_text
from autoopt.dag.compiler.requirements import HostPasses
from autoopt.errors import ConfigError, InputError
from autoopt.registry import PassInfo
from autoopt.spec import load_dag
from autoopt.spec.targets import HostSpec

LAB = {"type": "python_env", "python": "/lab/py"}


def hosts(known: Mapping[str, PassInfo], asked: list[HostSpec]) -> HostPasses:
    """Have every host know the same passes, and record which are asked."""

    def passes(host: HostSpec) -> Mapping[str, PassInfo]:
        asked.append(host)
        return known

    return passes


def planned(here: Mapping[str, PassInfo], there: Mapping[str, PassInfo], **dag: Any) -> tuple[Plan, list[HostSpec]]:
    asked: list[HostSpec] = []
    spec = load_dag({"name": "d", "chains": [list(dag["passes"])], **dag})
    return compile_plan(spec, World(here, {}).info, host_passes=hosts(there, asked)), asked


def test_the_host_of_a_node_describes_what_is_not_known_here() -> None:
    passes = {"a": "p", "b": {"pass": "far", "params": "search", "host": LAB}}
    plan, asked = planned({"p": make_info("p")}, {"far": make_info("far", 3)}, passes=passes)
    assert plan.point_count == 3
    assert {host.python for host in asked} == {"/lab/py"}
    assert plan.to_json()["hosts"] == {"b": "python_env /lab/py"}
    assert "b (far, x3, on python_env /lab/py)" in tree_text(plan)


def test_no_host_is_asked_for_passes_of_this_interpreter() -> None:
    plan, asked = planned({"p": make_info("p")}, {}, passes={"a": {"pass": "p", "host": LAB}})
    assert (plan.chain_count, asked) == (1, [])


def test_a_pass_whose_library_only_the_host_has_is_available_there() -> None:
    here = {"p": make_info("p", missing="lib is not installed")}
    plan, _ = planned(here, {"p": make_info("p")}, passes={"a": {"pass": "p", "host": LAB}})
    assert plan.chain_count == 1
    plan, _ = planned(here, {"p": make_info("p")}, passes={"a": "p"})
    assert plan.pruned_by_rule == {"unavailable": 1}


def test_what_the_host_lacks_is_said_of_the_host() -> None:
    there = {"p": make_info("p", missing="lib is not installed")}
    plan, _ = planned({}, there, passes={"a": {"pass": "p", "host": LAB}})
    (pruned,) = plan.pruned()
    assert pruned.reason == "a: pass p is not available: on python_env /lab/py, lib is not installed"


def test_a_plug_in_is_described_by_the_host_that_runs_it() -> None:
    here = {"p": make_info("p", 2, origin="plug-in mine", source_digest="mine 1.0")}
    there = {"p": make_info("p", 4, origin="plug-in mine", source_digest="mine 2.0")}
    passes = {"a": {"pass": "p", "params": "search", "host": LAB}}
    plan, _ = planned(here, there, passes=passes)
    assert (plan.point_count, plan.pass_info("a").source_digest) == (4, "mine 2.0")


def test_a_required_pass_runs_on_the_host_that_has_it() -> None:
    there = {"far": make_info("far", requires=("near", "p")), "near": make_info("near")}
    plan, _ = planned({"p": make_info("p")}, there, passes={"a": {"pass": "far", "host": LAB}})
    (chain,) = plan.chains()
    assert [(node.id, node.host.python) for node in chain.nodes] == [("near", "/lab/py"), ("p", ""), ("a", "/lab/py")]
    assert plan.to_json()["inserted"] == [
        {"node": "near", "pass": "near", "before": "a", "host": "python_env /lab/py"},
        {"node": "p", "pass": "p", "before": "a"},
    ]
    assert "inserted: near (on python_env /lab/py) before a" in tree_text(plan)


def test_a_pass_that_nobody_has_is_an_error_of_its_node() -> None:
    with pytest.raises(
        ConfigError, match=r"passes\.a\.pass: unknown pass 'fra' here and on python_env /lab/py; .*'far'"
    ):
        planned({}, {"far": make_info("far")}, passes={"a": {"pass": "fra", "host": LAB}})


def test_a_host_that_does_not_answer_is_the_error() -> None:
    def silent(host: HostSpec) -> Mapping[str, PassInfo]:
        raise InputError("no answer", where=host.elsewhere)

    spec = load_dag({"name": "d", "passes": {"a": {"pass": "far", "host": LAB}}, "chains": [["a"]]})
    with pytest.raises(InputError, match=r"^python_env /lab/py: no answer$"):
        compile_plan(spec, World({}, {}).info, host_passes=silent)
