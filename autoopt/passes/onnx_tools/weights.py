"""Weights that a model holds twice, once as they are and once transposed or in another shape, and those in bodies.

Those in the bodies of If, Loop and Scan are brought to where libraries look for them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from autoopt.model.lazy_imports import convenience, ir, ir_passes, np
from autoopt.passes.onnx_tools.gemm import is_weight
from autoopt.passes.onnx_tools.graphs import new_name
from autoopt.passes.onnx_tools.values import taken_names

SMALLEST_TIED: Final = 1024
"""Elements of the smallest weight that is worth a node."""
ROWS_AT_ONCE: Final = 4096
"""Rows of a matrix that are compared at once, which limits memory."""


def is_transposed(one: ir.Value, other: ir.Value | None) -> bool:
    """Tell if a weight holds the values of another one, a matrix, transposed."""
    left, right = one.const_value, None if other is None else other.const_value
    if left is None or right is None or left.dtype != right.dtype or len(left.shape) != 2:
        return False
    return list(left.shape) == list(right.shape)[::-1] and _has_same_values(left.numpy(), right.numpy().T)


def tie_weights(model: ir.Model, smallest: int) -> bool:
    """Store weights of at least `smallest` elements once that have the same values, in place; return False if none do.

    A copy becomes the weight itself, its Reshape, or its Transpose. Weights of bodies and those that are inputs or
    outputs stay.
    """
    graph, taken = model.graph, taken_names(model)
    kept: dict[tuple[ir.DataType, int], list[ir.Value]] = {}
    views: list[ir.Node] = []
    tied = False
    for value in [each for each in graph.initializers.values() if _may_be_tied(each, smallest)]:
        assert value.const_value is not None
        tensor = value.const_value
        alike = kept.setdefault((tensor.dtype, tensor.size), [])
        found = next(((other, form) for other in alike if (form := _form(value, other))), None)
        if found is None:
            alike.append(value)
            continue
        tied = True
        del graph.initializers[str(value.name)]
        source = found[0]
        if found[1] != "same":
            views.append(_view(value, *found, taken))
            source = views[-1].outputs[0]
        convenience.replace_all_uses_with(value, source)
    if views:
        graph.insert_before(graph[0], views)
    return tied


def _may_be_tied(value: ir.Value, smallest: int) -> bool:
    tensor = value.const_value
    if tensor is None or tensor.dtype == ir.DataType.STRING or tensor.size < max(1, smallest):
        return False
    return is_weight(value) and not value.is_graph_output()


def _form(value: ir.Value, other: ir.Value) -> str:
    """The operator that makes a weight of another of its size: `Reshape`, `Transpose` or `same`; else empty."""
    assert value.const_value is not None
    assert other.const_value is not None
    one, two = value.const_value.numpy(), other.const_value.numpy()
    if _has_same_values(one.reshape(-1), two.reshape(-1)):
        return "same" if one.shape == two.shape else "Reshape"
    if one.ndim == 2 and one.shape == two.shape[::-1] and _has_same_values(one, two.T):
        return "Transpose"
    return ""


def _has_same_values(one: np.ndarray, other: np.ndarray) -> bool:
    """Tell if two arrays of one shape and type have the same bytes."""
    if one[:1].tobytes() != other[:1].tobytes():
        return False
    parts = [slice(row, row + ROWS_AT_ONCE) for row in range(0, len(one), ROWS_AT_ONCE)]
    return all(one[part].tobytes() == other[part].tobytes() for part in parts)


def _view(value: ir.Value, other: ir.Value, op_type: str, taken: set[str]) -> ir.Node:
    """The node that makes a weight of another one."""
    name = new_name(f"{value.name}_{op_type}", taken)
    if op_type == "Transpose":
        view = ir.node("Transpose", [other], {"perm": [1, 0]}, name=name)
    else:
        assert value.shape is not None
        assert other.graph is not None
        shape = ir.Value(name=f"{name}_shape", const_value=ir.tensor(value.shape.numpy(), ir.DataType.INT64))
        other.graph.register_initializer(shape)
        view = ir.node("Reshape", [other, shape], name=name)
    view.outputs[0].name, view.outputs[0].type, view.outputs[0].shape = name, value.type, value.shape
    return view


def has_bodies(model: ir.Model) -> bool:
    """Tell if any node holds a graph, as If, Loop and Scan do."""
    return any(True for _ in model.graph.subgraphs())


def lift_constants(model: ir.Model) -> None:
    """Store Constant nodes as weights, where quantizers look for them, in place, in bodies too.

    A model without bodies whose Constant nodes hold no matrix stays as it is.
    """
    constants = [node.attributes.get("value") for node in model.graph if node.op_type == "Constant"]
    holds_matrix = any(len(each.as_tensor().shape) > 1 for each in constants if each is not None)
    if holds_matrix or has_bodies(model):
        ir_passes.LiftConstantsToInitializersPass(lift_all_constants=False, size_limit=1)(model)


def copy_weights_into_bodies(model: ir.Model, op_types: Collection[str]) -> None:
    """Give bodies weights of their own for nodes of these types, in place of weights of the main graph."""
    taken = taken_names(model)
    for body in model.graph.subgraphs():
        for node in body:
            for place, value in enumerate(node.inputs if node.op_type in op_types else ()):
                if value is None or not is_weight(value) or value.graph is not model.graph:
                    continue
                copy = ir.Value(name=new_name(f"{value.name}_copy", taken), const_value=value.const_value)
                body.register_initializer(copy)
                node.replace_input_with(place, copy)
                if not value.uses():
                    model.graph.initializers.pop(str(value.name), None)


def weighted_nodes(model: ir.Model, op_types: Collection[str]) -> Iterator[ir.Node]:
    """Iterate over nodes of these types that read a fixed value, in bodies too."""
    for node in model.graph.all_nodes():
        values = [value for value in node.inputs if value is not None]
        if node.op_type in op_types and any(convenience.get_const_tensor(value) is not None for value in values):
            yield node
