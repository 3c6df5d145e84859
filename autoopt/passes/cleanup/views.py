"""Operators that only change the shape of a value, joined."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

from autoopt.model.lazy_imports import convenience, ir, ir_passes
from autoopt.passes.base import Pass
from autoopt.passes.base.contract import RUNTIME_BOUND
from autoopt.passes.onnx_tools.graphs import DEFAULT_DOMAINS
from autoopt.passes.onnx_tools.libraries import apply_ir_passes

VIEWS: Final = ("Reshape", "Squeeze", "Unsqueeze", "Flatten")
"""Operators that keep the order of the elements."""
Shape: TypeAlias = tuple[int | str, ...]
"""Sizes; a name, or an empty one, for an open dimension."""


class MergeReshapes(Pass):
    """Joins operators that only change the shape of a value, such as Squeeze and Unsqueeze, into one Reshape.

    A Transpose that moves only dimensions of size 1 counts as one. Small models take much of their time for calls of
    such operators, which recurrent layers have around them.
    """

    tolerance = "lossless"
    needs_ops = (*VIEWS, "Transpose")
    conflicts = RUNTIME_BOUND
    libraries = ("onnx", "onnx-ir")

    def run(self, model: ir.Model) -> ir.Model | None:
        model = apply_ir_passes(
            model, ir_passes.ShapeInferencePass(check_type=False, strict_mode=False, data_prop=False)
        )
        merged = [_merge(chain) for chain in list(_chains(model.graph))]
        return model if any(merged) else None


def _chains(graph: ir.Graph) -> Iterator[list[ir.Node]]:
    """The longest chains of views, each from first to last; only the next view reads the value of another one."""
    for node in graph:
        if not _is_view(node) or _has_view_behind(node):
            continue
        chain = [node]
        while (before := chain[0].inputs[0] and chain[0].inputs[0].producer()) is not None:
            if before.graph is not node.graph or not _is_view(before) or not _has_view_behind(before):
                break
            chain.insert(0, before)
        yield chain


def _merge(chain: list[ir.Node]) -> bool:
    """Turn a chain of views into one for all; return False if it is one already."""
    source, last = chain[0].inputs[0], chain[-1]
    result, graph = last.outputs[0], last.graph
    shape = _shape(result)
    sizes = [size if isinstance(size, int) else -1 for size in shape]
    is_single = len(chain) == 1 and last.op_type != "Transpose"
    if is_single or not shape or 0 in sizes or sizes.count(-1) > 1:
        return False
    assert isinstance(graph, ir.Graph)
    assert source is not None
    if shape == _shape(source) and "" not in shape and not result.is_graph_output():
        convenience.replace_all_uses_with(result, source)
        graph.remove(chain, safe=True)
        return True
    name = f"{result.name}/merged_shape"
    target = ir.Value(name=name, const_value=ir.tensor(sizes, ir.DataType.INT64, name=name))
    graph.register_initializer(target)
    view = ir.node("Reshape", [source, target], name=last.name)
    convenience.replace_nodes_and_values(graph, last, chain, [view], [result], view.outputs)
    return True


def _is_view(node: ir.Node) -> bool:
    if node.domain not in DEFAULT_DOMAINS or not node.inputs or node.inputs[0] is None:
        return False
    if node.op_type != "Transpose":
        return node.op_type in VIEWS
    shape = _shape(node.inputs[0])
    order = node.attributes.get_ints("perm", range(len(shape))[::-1])
    moved = [axis for axis in order if axis < len(shape) and shape[axis] != 1]
    return bool(shape) and moved == sorted(moved)


def _has_view_behind(node: ir.Node) -> bool:
    """Tell if a view is all that reads the value of another one."""
    value = node.outputs[0]
    uses = value.uses()
    if value.is_graph_output() or len(uses) != 1:
        return False
    use = next(iter(uses))
    return use.idx == 0 and use.node.graph is node.graph and _is_view(use.node)


def _shape(value: ir.Value) -> Shape:
    """The sizes of a value; none if its rank is unknown."""
    if value.shape is None:
        return ()
    return tuple(size if isinstance(size, int) else size.value or "" for size in value.shape)
