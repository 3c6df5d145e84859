"""What onnxruntime's static quantiser gets wrong on some models, repaired beforehand without changing a result."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto


BIASED = frozenset({"Conv", "ConvTranspose", "Gemm", "LayerNormalization", "InstanceNormalization"})
"""Operators whose third input is a bias that the quantiser reads as one value per channel."""


def repair(model: ModelProto) -> None:
    """Both repairs, in place."""
    rename_lookalikes(model)
    flatten_biases(model)


def rename_lookalikes(model: ModelProto) -> None:
    """Rename initializers whose name plus digits is another tensor's name.

    The quantiser copies a shared bias `b` to `b2` without looking whether the graph has a `b2` already.
    """
    names = {name for node in model.graph.node for name in (*node.input, *node.output)}
    bases: set[str] = set()
    for name in names:
        base = name
        while base and base[-1].isdigit():
            base = base[:-1]
            bases.add(base)
    fixed = {value.name for value in (*model.graph.input, *model.graph.output)}
    renamed = {t.name: _free(t.name, names) for t in model.graph.initializer if t.name in bases - fixed}
    _rename(model, renamed)


def _free(name: str, names: set[str]) -> str:
    new = f"{name}/constant"
    while new in names:
        new += "_"
    return new


def _rename(model: ModelProto, renamed: dict[str, str]) -> None:
    from autoopt.passes.onnx_tools.graphs import graphs

    if not renamed:
        return
    for tensor in model.graph.initializer:
        tensor.name = renamed.get(tensor.name, tensor.name)
    for value in model.graph.value_info:
        value.name = renamed.get(value.name, value.name)
    for graph in graphs(model.graph):
        for node in graph.node:
            for index, name in enumerate(node.input):
                if name in renamed:
                    node.input[index] = renamed[name]


def flatten_biases(model: ModelProto) -> None:
    """Give biases of shape (1, ..., 1, n) the shape (n); the per-channel quantiser reads them by their first axis."""
    by_name = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in _biased(model):
        bias = by_name.get(node.input[2])
        if bias is None or len(bias.dims) < 2 or any(dim != 1 for dim in bias.dims[:-1]):
            continue
        readers = sum(list(other.input).count(bias.name) for other in model.graph.node)
        if readers == 1:
            flat = bias.dims[-1]
            del bias.dims[:]
            bias.dims.append(flat)


def unquantizable(model: ModelProto, ranges: set[str], excluded: list[str], op_types: list[str]) -> list[str]:
    """Names of nodes that the quantiser breaks on: a Softmax whose output has no range, since its type is not known,
    and a bias that is not one value per channel."""
    dims = {tensor.name: len(tensor.dims) for tensor in model.graph.initializer}
    softmax = [n for n in model.graph.node if n.op_type == "Softmax" and n.output[0] not in ranges]
    biased = [n for n in _biased(model) if dims.get(n.input[2], 1) != 1]
    return sorted({n.name for n in (*softmax, *biased) if n.op_type in op_types and n.name not in excluded})


def _biased(model: ModelProto) -> list[NodeProto]:
    return [n for n in model.graph.node if n.op_type in BIASED and len(n.input) > 2 and n.input[2]]
