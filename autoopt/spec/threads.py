"""Search the number of threads where a target lists several."""

from __future__ import annotations

from typing import Final

from pydantic import JsonValue

from autoopt.spec.dag import DagSpec
from autoopt.spec.nodes import PassNode

SESSION_PASSES: Final = frozenset(("session_tuning", "OrtSessionParamsTuning", "OrtPerfTuning"))
"""The pass that sets session options, and its aliases."""
PARAMETER: Final = "intra_op_num_threads"


def with_thread_search(spec: DagSpec) -> DagSpec:
    """Return a copy that searches the threads of its only target; the spec itself if they are fixed.

    Every node of `session_tuning` that does not set the threads searches them. A graph without such a node gets one at
    the end of its chains, and the chain of this node alone.
    """
    target = spec.all_targets[0]
    if not target.thread_choices or len(spec.all_targets) > 1:
        return spec
    search: dict[str, JsonValue] = {"search": [*target.accelerator().thread_values]}
    nodes = {name: node for name, node in spec.passes.items() if node.pass_name in SESSION_PASSES}
    if nodes:
        searching = {name: _searching(node, search) for name, node in nodes.items()}
        return spec.model_copy(update={"passes": {**spec.passes, **searching}})
    name = "threads"
    while name in spec.passes:
        name += "_"
    added = PassNode.model_validate({"pass": "session_tuning", "params": {PARAMETER: search}})
    return spec.model_copy(update={"passes": {**spec.passes, name: added}, **_graph_with_last(spec, name)})


def _searching(node: PassNode, search: JsonValue) -> PassNode:
    if isinstance(node.params, str):
        if node.params == "search":
            return node  # searches everything that the target offers
        return node.model_copy(update={"params": {PARAMETER: search}, "search": "none"})
    if PARAMETER in node.params:
        return node
    return node.model_copy(update={"params": {**node.params, PARAMETER: search}})


def _graph_with_last(spec: DagSpec, name: str) -> dict[str, object]:
    """The field of the graph, with one more node at the end that a chain may skip."""
    if spec.stages is not None:
        return {"stages": (*spec.stages, (name, None))}
    if spec.chains is not None:
        longer = tuple((*chain, name) for chain in spec.chains)
        return {"chains": (*longer, (name,))}
    edges = spec.edges or ()
    sources = {node for path in edges for node in path[:-1]}
    leaves = dict.fromkeys(path[-1] for path in edges if path[-1] not in sources)
    return {"edges": (*edges, *((leaf, name) for leaf in leaves))}
