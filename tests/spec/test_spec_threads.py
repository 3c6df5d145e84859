"""The search of threads is part of the graph where a target lists several."""

from __future__ import annotations

from typing import Any

import pytest

from autoopt.spec import DagSpec, load_dag
from autoopt.spec.threads import with_thread_search

SEARCH = {"search": [1, None]}


def spec(threads: object = (1, "all"), **fields: Any) -> DagSpec:
    dag = {"name": "d", "passes": {"a": "simplify", "b": "constant_folding"}, "target": {"threads": threads}}
    if not {"chains", "stages", "edges"} & set(fields):
        dag["chains"] = [["a", "b"], ["a"]]
    return load_dag({**dag, **fields})


def test_fixed_threads_leave_the_graph_alone() -> None:
    fixed = spec(2)
    assert with_thread_search(fixed) is fixed


def test_each_of_several_targets_is_completed_by_itself() -> None:
    targets = [{"name": "one", "threads": 1}, {"name": "two", "threads": [1, 2]}]
    both = load_dag({"name": "d", "passes": ["simplify"], "chains": [["simplify"]], "targets": targets})
    assert with_thread_search(both) is both
    assert "threads" in with_thread_search(both.for_target("two")).passes


@pytest.mark.parametrize(
    ("graph", "kind", "longer"),
    [
        ([["a", "b"], ["a"]], "chains", (("a", "b", "threads"), ("a", "threads"), ("threads",))),
        ([["a", None], ["b"]], "stages", (("a", None), ("b",), ("threads", None))),
        (["a -> b"], "edges", (("a", "b"), ("b", "threads"))),
    ],
)
def test_a_graph_without_a_session_gets_one_at_the_end(graph: Any, kind: str, longer: Any) -> None:
    searched = with_thread_search(spec(**{kind: graph}))
    assert getattr(searched, kind) == longer
    assert (searched.passes["threads"].pass_name, searched.passes["threads"].params) == (
        "session_tuning",
        {"intra_op_num_threads": SEARCH},
    )
    assert with_thread_search(searched).passes == searched.passes


def test_the_new_node_takes_a_free_name() -> None:
    searched = with_thread_search(
        spec(passes={"a": "simplify", "threads": "constant_folding"}, chains=[["a", "threads"]])
    )
    assert searched.passes["threads_"].pass_name == "session_tuning"


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"execution_mode": "parallel"}, {"execution_mode": "parallel", "intra_op_num_threads": SEARCH}),
        ({}, {"intra_op_num_threads": SEARCH}),
        ("default", {"intra_op_num_threads": SEARCH}),
        ("search", "search"),
        ({"intra_op_num_threads": 3}, {"intra_op_num_threads": 3}),
    ],
)
@pytest.mark.parametrize("name", ["session_tuning", "OrtPerfTuning"])
def test_a_session_of_the_user_searches_them_unless_it_sets_them(name: str, params: Any, expected: Any) -> None:
    passes = {"a": "simplify", "s": {"pass": name, "params": params}}
    searched = with_thread_search(spec(passes=passes, chains=[["a", "s"]]))
    assert searched.passes["s"].params == expected
    assert searched.chains == (("a", "s"),)
