"""LoRA adapters: their weights made inputs of the model, and stored in a file beside it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from autoopt.model import io
from autoopt.model.lazy_imports import helper, np, numpy_helper
from autoopt.passes.base import Pass, Refused
from autoopt.passes.base.conflicts import RUNTIME_BOUND
from autoopt.passes.onnx_tools.graphs import (
    attribute_values,
    consumers,
    new_name,
    producers,
    rename_inputs,
    replace_items,
    value_names,
    walk_nodes,
)

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto

ADAPTER_FILE: Final = "adapter_weights"
RANK: Final = "lora_r"
"""The dimension of the new inputs that may differ between adapters."""
PRODUCTS: Final = ("MatMul", "Gemm")
PASSED: Final = ("Identity", "Cast", "Dropout", "Mul", "Div")
"""Operators between an adapter and the layer to which it is added: they scale its result or convert it."""
NAME_PARTS: Final = re.compile(r"base_model|model|weight|default(_\d+)*|lora_[AB]")
"""Parts that exporters add to the name of a layer; `model` only at its beginning."""
SAFETENSORS_TYPES: Final = {"float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64"}


@dataclass(frozen=True)
class LowRankPair:
    """The two products of an adapter, x A B."""

    first: NodeProto
    second: NodeProto

    @property
    def weights(self) -> tuple[str, str]:
        """Names of A and B."""
        return self.first.input[1], self.second.input[1]


class ExtractAdapters(Pass):
    """Makes the weights of LoRA adapters inputs of the model, and stores their values in a file beside it.

    One model then serves many adapters: onnxruntime takes such a file (`LoraAdapter`, `RunOptions.add_active_adapter`)
    or the arrays as inputs. An adapter is a pair of products of low rank that is added to a layer of the same input, or
    that has `lora` in its names. The rank of the inputs is open. Must be the last pass: others store the model without
    the file, and take inputs with a default for weights.
    """

    target_bound = False
    tolerance = "lossless"
    takes = "path"
    layout = True
    conflicts = RUNTIME_BOUND
    needs_ops = PRODUCTS
    libraries = ("onnx", "onnxruntime")

    defaults: Annotated[
        Literal["adapter", "empty", "none"],
        "values of the inputs if the caller gives none: this adapter; an empty one, which leaves the base model; or "
        "none, so that the caller must give all",
    ] = "adapter"
    file_format: Annotated[
        Literal["onnx_adapter", "safetensors"], "format of the file; onnxruntime reads onnx_adapter"
    ] = "onnx_adapter"

    _weights: Mapping[str, Any] = {}  # arrays, whose type would load numpy when the pass is described

    def run(self, model: Path) -> Path:
        loaded = io.load(model)
        pairs = find_low_rank_pairs(loaded.graph)
        if not pairs:
            raise Refused("the model has no LoRA adapters in float: no pair of products of low rank beside a layer")
        self._weights = make_inputs(loaded, pairs, self.defaults)
        path = io.save(loaded, self.context.work / "extracted")
        file = path.with_name(f"{ADAPTER_FILE}.{self.file_format}")
        WRITERS[self.file_format](self._weights, file)
        shapes = {name: list(array.shape) for name, array in self._weights.items()}
        self.context.reports["extract_adapters"] = {"file": file.name, "inputs": shapes}
        return path

    def feeds(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray] | None:
        return {**feeds, **self._weights}


def find_low_rank_pairs(graph: GraphProto) -> list[LowRankPair]:
    """Find the adapters among the products of a graph."""
    weights = {tensor.name: tensor for tensor in graph.initializer}
    sources, readers = producers(graph), consumers(graph)
    outputs = {value.name for value in graph.output}
    pairs = []
    for second in graph.node:
        first = sources.get(second.input[0]) if _is_product(second, weights) else None
        if first is None or not _is_product(first, weights):
            continue
        if first.output[0] in outputs or len(readers[first.output[0]]) > 1:
            continue
        rows, rank = _matrix_shape(first, weights)
        columns = _matrix_shape(second, weights)[1]
        if rank >= min(rows, columns):
            continue
        pair = LowRankPair(first, second)
        if _is_named(pair) or _is_beside_a_layer(pair, sources, readers):
            pairs.append(pair)
    return pairs


def _is_product(node: NodeProto, weights: Mapping[str, TensorProto]) -> bool:
    """Tell if a node only multiplies a value with a matrix of the model."""
    if node.op_type not in PRODUCTS or node.input[1] not in weights or len(weights[node.input[1]].dims) != 2:
        return False
    return len(node.input) == 2


def _is_transposed(node: NodeProto) -> bool:
    return bool(attribute_values(node).get("transB", 0))


def _matrix_shape(node: NodeProto, weights: Mapping[str, TensorProto]) -> tuple[int, int]:
    """Inputs and outputs of a product."""
    inputs, outputs = weights[node.input[1]].dims
    if _is_transposed(node):
        return outputs, inputs
    return inputs, outputs


def _is_named(pair: LowRankPair) -> bool:
    names = (*pair.weights, pair.first.name, pair.second.name)
    return any("lora" in name.lower() for name in names)


def _is_beside_a_layer(
    pair: LowRankPair, sources: Mapping[str, NodeProto], readers: Mapping[str, list[NodeProto]]
) -> bool:
    """Tell if the result is added to a value that is computed from the same input."""
    value = pair.second.output[0]
    while len(readers.get(value, [])) == 1 and readers[value][0].op_type in PASSED:
        value = readers[value][0].output[0]
    additions = [node for node in readers.get(value, []) if node.op_type == "Add"]
    if not additions:
        return False
    other = next((name for name in additions[0].input if name != value), value)
    layer = sources.get(other)
    while layer is not None and layer.op_type == "Add":  # of the layer's bias
        layer = next((sources[name] for name in layer.input if name in sources), None)
    return layer is not None and pair.first.input[0] in layer.input


def make_inputs(model: ModelProto, pairs: list[LowRankPair], defaults: str) -> dict[str, np.ndarray]:
    """Turn the weights of adapters into inputs of open rank, in place.

    Args:
        model: the model.
        pairs: the adapters.
        defaults: see `ExtractAdapters`.

    Returns:
        The weights by the names of the inputs.
    """
    graph = model.graph
    names = value_names(model)
    weights = {tensor.name: tensor for tensor in graph.initializer}
    extracted: dict[str, np.ndarray] = {}
    renamed: dict[str, str] = {}
    for number, pair in enumerate(pairs):
        stem = _layer_name(pair) or f"adapter_{number}"
        for node, old, part, axis in zip((pair.first, pair.second), pair.weights, "AB", (1, 0), strict=True):
            if old in renamed:  # shared with another layer
                continue
            axis ^= _is_transposed(node)
            tensor = weights[old]
            names.discard(old)
            renamed[old] = tensor.name = new_name(f"{stem}.lora_{part}.weight", names)
            extracted[tensor.name] = numpy_helper.to_array(tensor)
            shape: list[int | str] = list(tensor.dims)
            shape[axis] = RANK
            graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, shape))
            if defaults == "empty":
                empty = np.delete(extracted[tensor.name], np.s_[:], axis)
                tensor.CopyFrom(numpy_helper.from_array(empty, tensor.name))
    rename_inputs(walk_nodes(graph), renamed)
    if defaults == "none":
        replace_items(graph.initializer, [tensor for tensor in graph.initializer if tensor.name not in extracted])
    del graph.value_info[:]  # shapes with the rank of this adapter
    model.ir_version = max(model.ir_version, 4)
    return extracted


def _layer_name(pair: LowRankPair) -> str:
    """The name of the layer that an adapter belongs to, with dots, from the names of its weights or its nodes."""
    name = pair.first.name.rpartition("/")[0]
    if "lora_" in pair.weights[0]:
        name = pair.weights[0]
    parts = [part for part in re.split(r"[./]+", name) if part]
    while parts and parts[0] in ("base_model", "model"):
        parts = parts[1:]
    return ".".join(part for part in parts if part == "model" or not NAME_PARTS.fullmatch(part))


def _write_onnx_adapter(weights: Mapping[str, np.ndarray], file: Path) -> None:
    from onnxruntime import AdapterFormat, OrtValue

    adapter = AdapterFormat()
    adapter.set_adapter_version(1)
    adapter.set_model_version(1)
    adapter.set_parameters({name: OrtValue.ortvalue_from_numpy(array) for name, array in weights.items()})
    adapter.export_adapter(str(file))


def _write_safetensors(weights: Mapping[str, np.ndarray], file: Path) -> None:
    """Write the format: the length of the header, the header in JSON, and the bytes of all tensors."""
    header = {}
    end = 0
    for name, array in weights.items():
        start, end = end, end + array.nbytes
        kind = SAFETENSORS_TYPES[array.dtype.name]
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with file.open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little"))
        stream.write(text)
        for array in weights.values():
            stream.write(array.tobytes())


WRITERS: Final = {"onnx_adapter": _write_onnx_adapter, "safetensors": _write_safetensors}
