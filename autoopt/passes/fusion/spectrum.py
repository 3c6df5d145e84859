"""Short-time Fourier transforms as convolutions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autoopt.model.lazy_imports import helper, np, numpy_helper, onnx
from autoopt.passes.base import Pass
from autoopt.passes.fusion.weight_folding import FUSION_CONFLICTS
from autoopt.passes.onnx_tools.graphs import (
    attribute_values,
    constant_tensors,
    is_standard,
    new_name,
    replace_items,
    value_names,
)
from autoopt.passes.onnx_tools.large_models import inferred_graph

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnx import ModelProto, NodeProto


class StftToConv(Pass):
    """Computes short-time Fourier transforms (STFT) of real signals with convolutions, which CPUs run much faster."""

    target_bound = False
    needs_ops = ("STFT",)
    conflicts = FUSION_CONFLICTS

    def run(self, model: ModelProto) -> ModelProto | None:
        ranks = _ranks_of_real_values(model)
        constants = {name: numpy_helper.to_array(tensor) for name, tensor in constant_tensors(model.graph).items()}
        names = value_names(model)
        nodes: list[NodeProto] = []
        for node in model.graph.node:
            kernel = None
            if node.op_type == "STFT" and is_standard(node) and node.input[0] in ranks:
                kernel = _kernel(node, constants)
            if kernel is None:
                nodes.append(node)
                continue
            prefix = new_name(f"{node.output[0]}/", names)
            nodes += _convolution(node, prefix, int(constants[node.input[1]]), ranks[node.input[0]])
            split = _integers(0, 0, kernel.shape[0] // 2, 2)
            for name, array in (("kernel", kernel), ("axis", _integers(1)), ("split", split)):
                model.graph.initializer.append(numpy_helper.from_array(array, f"{prefix}{name}"))
        if len(nodes) == len(model.graph.node):
            return None
        replace_items(model.graph.node, nodes)
        return model


def _ranks_of_real_values(model: ModelProto) -> dict[str, int]:
    """Numbers of dimensions of the values that may be real signals: [batch, samples] or [batch, samples, 1].

    The runtime has convolutions of float32, but not of float64.
    """
    graph = inferred_graph(model)
    ranks = {}
    for value in (*graph.input, *graph.value_info):
        sizes = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        if value.type.tensor_type.elem_type != onnx.TensorProto.FLOAT:
            continue
        if len(sizes) == 2 or (len(sizes) == 3 and sizes[2] == 1):
            ranks[value.name] = len(sizes)
    return ranks


def _kernel(node: NodeProto, constants: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """The weights that compute real and imaginary part of each bin: [2 x bins, 1, samples]; None if not constant."""
    window, length = [*node.input[2:], "", ""][:2]
    if not constants.keys() >= set(filter(None, node.input[1:])) or not (window or length):
        return None
    taps = constants[window] if window else np.ones(int(constants[length]), np.float32)
    size = taps.size
    if length and size != int(constants[length]):
        return None
    bins = size
    if attribute_values(node).get("onesided", 1):
        bins = size // 2 + 1
    angles = 2 * np.pi * (np.outer(np.arange(bins), np.arange(size)) % size) / size
    parts = [taps * np.cos(angles), -taps * np.sin(angles)]
    return np.stack(parts, axis=1).reshape(2 * bins, 1, size).astype(taps.dtype)


def _convolution(node: NodeProto, prefix: str, step: int, rank: int) -> list[NodeProto]:
    """Nodes that compute what an STFT does: [batch, samples] to [batch, frames, bins, 2]."""
    signal, filtered, turned = f"{prefix}signal", f"{prefix}filtered", f"{prefix}turned"
    to_channels = helper.make_node("Transpose", [node.input[0]], [signal], f"{prefix}to_channels", perm=[0, 2, 1])
    if rank == 2:
        to_channels = helper.make_node("Unsqueeze", [node.input[0], f"{prefix}axis"], [signal], f"{prefix}to_channels")
    return [
        to_channels,
        helper.make_node("Conv", [signal, f"{prefix}kernel"], [filtered], f"{prefix}conv", strides=[step]),
        helper.make_node("Transpose", [filtered], [turned], f"{prefix}to_frames", perm=[0, 2, 1]),
        helper.make_node("Reshape", [turned, f"{prefix}split"], [node.output[0]], f"{prefix}to_parts"),
    ]


def _integers(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)
