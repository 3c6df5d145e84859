"""Products as MatMul of a weight and Add, which is what weight quantizers and attention fusions look for."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

from autoopt.model.lazy_imports import convenience, ir, np
from autoopt.passes.onnx_tools.graphs import DEFAULT_DOMAINS, new_name
from autoopt.passes.onnx_tools.values import taken_names

if TYPE_CHECKING:
    from numpy import ndarray

FACTORS: Final = ("alpha", "beta")
"""Attributes of Gemm that scale its product and its bias."""
ATTENTION_OPS: Final = ("Attention", "MultiHeadAttention", "GroupQueryAttention")
"""Of onnxruntime; their first output has three dimensions."""


def split_gemms(model: ir.Model, excluded: Collection[str] = ()) -> int:
    """Replace each Gemm but the `excluded` by MatMul and Add, in place, also in bodies; return their number.

    Only those whose second input is fixed, so that its transposition and scale cost nothing at run time. The MatMul
    takes the node's name.
    """
    weights = _Weights(model)
    found = [node for node in _fixed_gemms(model) if node.name not in excluded]
    for node in found:
        _split(node, weights)
    weights.remove_unused()
    return len(found)


def fold_gemm_factors(model: ir.Model) -> None:
    """Fold `alpha` and `beta` of each Gemm into its constants, in place, also in bodies, with one bias per column.

    Quantizers leave both out, and read other biases wrongly. A Gemm that adds a matrix or a computed value becomes
    MatMul and Add. One without a fixed second input stays as it is.
    """
    weights = _Weights(model)
    for node in _fixed_gemms(model):
        if _has_bias_row(node):
            _fold(node, weights)
        else:
            _split(node, weights)
    weights.remove_unused()


def fold_transposed_weights(model: ir.Model, excluded: Collection[str] = ()) -> None:
    """Give each MatMul that multiplies with the Transpose of a weight that matrix as a weight of its own, in place.

    Leaves out nodes with `excluded` names, bodies, and weights that callers can override.
    """
    weights = _Weights(model)
    for node in list(model.graph):
        view = node.inputs[1].producer() if node.op_type == "MatMul" and node.inputs[1] is not None else None
        if view is None or view.op_type != "Transpose" or node.name in excluded or not is_weight(view.inputs[0]):
            continue
        if list(view.attributes.get_ints("perm", [1, 0])) != [1, 0]:
            continue
        node.replace_input_with(1, weights.changed(view.inputs[0], "transposed", lambda array: array.T))
        if not view.outputs[0].uses() and not view.outputs[0].is_graph_output():
            model.graph.remove(view, safe=True)
    weights.remove_unused()


def flatten_attention(model: ir.Model) -> None:
    """Flatten the result of an attention in front of a Gemm, in place.

    Attention operators return (batch, items, hidden size) and Gemm takes rows. With a fixed batch, simplifiers make one
    Reshape from the heads to the rows, and fusions replace it together with the attention.
    """
    for node in list(model.graph.all_nodes()):
        value = node.inputs[0] if node.op_type == "Gemm" else None
        attention = None if value is None else value.producer()
        if (
            value is None
            or attention is None
            or attention.op_type not in ATTENTION_OPS
            or attention.outputs[0] != value
        ):
            continue
        value.shape = None  # it is recorded as that of the rows
        flat = ir.node("Flatten", [value], {"axis": 2})
        assert node.graph is not None
        node.graph.insert_before(node, flat)
        node.replace_input_with(0, flat.outputs[0])


def is_weight(value: ir.Value | None) -> bool:
    """Tell if a value is a weight that callers cannot override."""
    return value is not None and value.is_initializer() and not value.is_graph_input()


def _fixed_gemms(model: ir.Model) -> list[ir.Node]:
    nodes = [node for graph in model.graphs() for node in graph]
    gemms = [node for node in nodes if node.op_type == "Gemm" and node.domain in DEFAULT_DOMAINS]
    return [node for node in gemms if is_weight(node.inputs[1])]


def _has_bias_row(node: ir.Node) -> bool:
    """Tell if what a Gemm adds, if anything, is a fixed number for each column."""
    matrix, bias = [*node.inputs, None][1:3]
    if bias is None:
        return True
    if not is_weight(bias) or matrix is None or matrix.shape is None or bias.shape is None:
        return False
    columns = matrix.shape[1 - node.attributes.get_int("transB", 0)]
    sizes = bias.shape.numpy()
    return bool(np.prod(sizes[:-1]) == 1 and np.prod(sizes) in (1, columns))


def _fold(node: ir.Node, weights: _Weights) -> None:
    matrix, bias = [*node.inputs, None][1:3]
    assert matrix is not None
    assert matrix.shape is not None
    alpha, beta = (node.attributes.get_float(name, 1.0) for name in FACTORS)
    columns = matrix.shape[1 - node.attributes.get_int("transB", 0)]
    if bias is not None and (beta != 1.0 or bias.shape != [columns]):
        row = weights.changed(bias, "row", lambda array: _scaled(np.broadcast_to(array.ravel(), [columns]), beta))
        node.replace_input_with(2, row)
    if alpha != 1.0:
        node.replace_input_with(1, weights.changed(matrix, f"times_{alpha:g}", lambda array: _scaled(array, alpha)))
    for name in FACTORS:
        node.attributes.pop(name, None)


def _split(node: ir.Node, weights: _Weights) -> None:
    left, right, added = [*node.inputs, None][:3]
    alpha, beta = (node.attributes.get_float(name, 1.0) for name in FACTORS)
    tape = ir.tape.Tape()
    if node.attributes.get_int("transA", 0):
        left = tape.op("Transpose", [left], {"perm": [1, 0]})
    assert right is not None
    is_turned = node.attributes.get_int("transB", 0) == 1
    if is_turned or alpha != 1.0:
        suffix = "right" if alpha == 1.0 else f"right_times_{alpha:g}"
        right = weights.changed(right, suffix, lambda array: _scaled(array.T if is_turned else array, alpha))
    result = tape.op("MatMul", [left, right], name=node.name)
    if added is not None:
        if beta != 1.0:
            added = _times(beta, added, weights, right.dtype, tape)
        result = tape.op("Add", [result, added], name=f"{node.name}_Add" if node.name else None)
    assert node.graph is not None
    convenience.replace_nodes_and_values(node.graph, node, [node], tape.nodes, node.outputs, [result])


def _times(
    factor: float, value: ir.Value, weights: _Weights, dtype: ir.DataType | None, tape: ir.tape.Tape
) -> ir.Value:
    """A weight or a computed value times a number."""
    if is_weight(value):
        return weights.changed(value, f"times_{factor:g}", lambda array: _scaled(array, factor))
    number = ir.tensor(np.asarray(factor, dtype.numpy() if dtype else np.float32))
    return tape.op("Mul", [value, tape.op("Constant", [], {"value": number})])


def _scaled(array: ndarray, factor: float) -> ndarray:
    if factor == 1.0:
        return array
    return (array * np.asarray(factor, np.float64)).astype(array.dtype)


class _Weights:
    """Makes weights from others, each once, beside them in their graph."""

    def __init__(self, model: ir.Model) -> None:
        self._taken = taken_names(model)
        self._made: dict[tuple[ir.Value, str], ir.Value] = {}

    def changed(self, weight: ir.Value | None, suffix: str, change: Callable[[ndarray], ndarray]) -> ir.Value:
        """A weight changed by a function, with a name that ends in `suffix`."""
        assert weight is not None
        assert weight.const_value is not None
        assert weight.graph is not None
        if (weight, suffix) not in self._made:
            name = new_name(f"{weight.name}_{suffix}", self._taken)
            tensor = ir.tensor(np.ascontiguousarray(change(weight.const_value.numpy())), name=name)
            made = self._made[weight, suffix] = ir.Value(name=name, const_value=tensor)
            weight.graph.register_initializer(made)
        return self._made[weight, suffix]

    def remove_unused(self) -> None:
        """Remove the weights that others took the place of and nothing reads."""
        for weight, _ in self._made:
            if weight.graph is not None and not weight.uses() and not weight.is_graph_output():
                weight.graph.initializers.pop(str(weight.name), None)
