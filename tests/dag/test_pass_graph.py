"""The pass graph: every path from start to end is one chain; also as a networkx DAG."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import networkx as nx
from children import HANG_SECONDS

from autoopt.dag.graph.pass_graph import END, START, build_graph
from autoopt.spec import load_dag


def paths(**graph: Any) -> tuple[set[tuple[str, ...]], Any]:
    nodes = list("abcde")
    kind, written = next(iter(graph.items()))
    used = [n for n in nodes if n in str(written).replace("None", "")]
    built = build_graph(load_dag({"name": "d", "passes": used, kind: written}))
    assert isinstance(built.graph, nx.DiGraph)
    assert nx.is_directed_acyclic_graph(built.graph)
    assert built.order[0] == START
    found = {
        tuple(built.node_of[k] for k in p[1:-1]) for p in nx.all_simple_paths(built.graph, START, END) if len(p) > 2
    }
    return found, built


def test_lists_become_a_prefix_tree_of_copies() -> None:
    found, built = paths(chains=[list("abc"), list("dbe"), list("ab")])
    assert found == {tuple("abc"), tuple("dbe"), tuple("ab")}
    assert sorted(k for k in built.node_of if built.node_of[k] == "b") == ["b", "b#2"]
    assert built.edge_count == 4


def test_stages_connect_across_skips() -> None:
    found, built = paths(stages=["a", ["b", None], [None, "c", "d"]])
    assert found == {("a",), tuple("ab"), tuple("ac"), tuple("ad"), tuple("abc"), tuple("abd")}
    assert built.edge_count == 5


def test_skips_at_the_start_and_the_end() -> None:
    found, built = paths(stages=[["a", None], ["b", None]])
    assert found == {("a",), ("b",), tuple("ab")}
    assert not built.graph.has_edge(START, END)


def test_edges_give_every_root_to_leaf_path() -> None:
    found, built = paths(edges=["a -> b -> d", ["a", "c"], "c -> d", "e"])
    assert found == {tuple("abd"), tuple("acd"), ("e",)}
    assert built.edges == tuple(sorted(built.graph.edges))
    assert built.edge_count == 4


def test_planning_does_without_networkx_which_takes_longer_to_import_than_planning() -> None:
    code = (
        "import sys\n"
        "from autoopt.dag import compile_plan, pass_infos\n"
        "from autoopt.spec import load_dag\n"
        "from autoopt.target import Accelerator\n"
        "dag = {'name': 'd', 'passes': ['simplify', 'session_tuning'], 'chains': [['simplify', 'session_tuning']],\n"
        "       'search': {'strategy': 'per-chain', 'order': ['simplify', 'session_tuning']}}\n"
        "assert compile_plan(load_dag(dag), pass_infos(Accelerator())).chain_count == 1\n"
        "print(sorted({'networkx', 'numpy', 'onnx', 'onnxruntime', 'optuna'} & set(sys.modules)))\n"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG_SECONDS)
    assert shown.stdout.strip() == "[]", shown.stdout + shown.stderr
