"""Adapters of fine-tuned models: their weights made inputs of the model, and stored in a file beside it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from autoopt.model import io
from autoopt.model.lazy_imports import helper, np, numpy_helper
from autoopt.model.tensors import by_name, names_of
from autoopt.passes.base import Pass, Refused
from autoopt.passes.base.conflicts import RUNTIME_BOUND
from autoopt.passes.onnx_tools.graphs import (
    attribute_values,
    consumers,
    new_name,
    producers,
    read_names,
    readers_of,
    rename_inputs,
    replace_items,
    value_names,
    walk_nodes,
)

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

ADAPTER_FILE: Final = "adapter_weights"
RANK: Final = "lora_r"
"""The dimension of the new inputs that may differ between adapters."""
PRODUCTS: Final = ("MatMul", "Gemm")
PASSED: Final = ("Identity", "Cast", "Dropout", "Mul", "Div")
"""Operators between an adapter and the layer to which it is added: they scale its result or convert it."""
LAYERS: Final = (*PRODUCTS, "Gather", "MatMulNBits", "GatherBlockQuantized")
LAYER_DEPTH: Final = 6
"""Most operators between that layer and the addition: DoRA takes the bias of the layer off and scales the rest."""
WEIGHT_NAME: Final = re.compile(r"(lora|hada|lokr)_\w+")
"""PEFT's names for the weights of LoRA and DoRA, LoHa, LoKr."""
FACTOR_NAME: Final = re.compile(r"(lora_(embedding_)?[AB]|(hada|lokr)_w\d_[ab])\b")
"""Those of the matrices with an axis of the rank."""
SCOPES: Final = "pkg.torch.onnx.name_scopes"
"""Entry of a node's metadata: the names of the modules around it, from the outermost on, and its own name."""
SAFETENSORS_TYPES: Final = {"float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64"}


@dataclass(frozen=True)
class AdapterWeight:
    """A weight that becomes an input with a name.

    `rank_axis` is None for weights without an axis of the rank, such as the magnitudes of DoRA.
    """

    tensor: str
    name: str
    rank_axis: int | None
    readers: tuple[NodeProto, ...]


@dataclass(frozen=True)
class _Part:
    """A weight that a node of an adapter reads, and the name of its input after that of the layer."""

    name: str
    node: NodeProto
    tensor: str
    rank_axis: int | None = None


class ExtractAdapters(Pass):
    """Makes the weights of adapters (LoRA, DoRA, LoHa, LoKr) inputs of the model, and stores them in a file beside it.

    One model then serves many adapters: onnxruntime takes such a file (`LoraAdapter`, `RunOptions.add_active_adapter`)
    or the arrays as inputs. Adapters are found by PEFT's names for their weights; LoRA and DoRA also without names, as
    two products of low rank that are added to a layer of the same input. The rank of the inputs is open. To keep the
    weights of LoHa and LoKr apart, PyTorch's exporter needs `optimize=False`. Must be the last pass: others store the
    model without the file, and take inputs with a default for weights.
    """

    version = 2
    target_bound = False
    tolerance = "lossless"
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
        read_weights_directly(loaded.graph)
        weights = find_adapter_weights(loaded.graph)
        if not weights:
            raise Refused(
                "the model has no adapters in float: no weights with PEFT's names, and no LoRA beside a layer"
            )
        if self.defaults == "empty" and any(weight.rank_axis is None for weight in weights):
            raise Refused("defaults empty is for LoRA and LoHa: other adapters always change the model")
        self._weights = make_inputs(loaded, weights, self.defaults)
        path = io.save(loaded, self.context.work / "extracted")
        file = path.with_name(f"{ADAPTER_FILE}.{self.file_format}")
        WRITERS[self.file_format](self._weights, file)
        shapes = {name: list(array.shape) for name, array in self._weights.items()}
        self.context.reports["extract_adapters"] = {"file": file.name, "inputs": shapes}
        return path

    def feeds(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray] | None:
        return {**feeds, **self._weights}


def read_weights_directly(graph: GraphProto) -> None:
    """Take out Identity nodes between weights and their readers, in place: exporters write them for equal weights."""
    outputs = names_of(graph.output)
    direct = {tensor.name: tensor.name for tensor in graph.initializer}
    others = []
    for node in graph.node:
        if node.op_type == "Identity" and node.input[0] in direct and node.output[0] not in outputs:
            direct[node.output[0]] = direct[node.input[0]]
        else:
            others.append(node)
    replace_items(graph.node, others)
    rename_inputs(walk_nodes(graph), direct)


def find_adapter_weights(graph: GraphProto) -> list[AdapterWeight]:
    """Find the weights of adapters by their names, and those of LoRA and DoRA by their place in the graph."""
    readers = readers_of(walk_nodes(graph))
    weights: dict[tuple[str, str], AdapterWeight] = {}
    named = _named_weights(graph, readers)
    for number, parts in enumerate(_Finder(graph).adapters()):
        stated = (_split_name(part.tensor)[0] for part in parts if part.tensor in named)
        layer = next(stated, "") or _layer_name(parts[0].node)
        for part in parts:
            if part.tensor in named:
                continue
            name = f"{layer or f'adapter_{number}'}.{part.name}"
            # Exporters store equal weights once, such as the zeros of new adapters, so others may read the tensor too.
            own = [node for node in readers[part.tensor] if node is part.node or (layer and _layer_name(node) == layer)]
            weights.setdefault((part.tensor, name), AdapterWeight(part.tensor, name, part.rank_axis, tuple(own)))
    return [*named.values(), *weights.values()]


def _named_weights(graph: GraphProto, readers: Mapping[str, list[NodeProto]]) -> dict[str, AdapterWeight]:
    """The weights with PEFT's names, by tensor."""
    tensors = {}
    for tensor in graph.initializer:
        is_float = helper.tensor_dtype_to_np_dtype(tensor.data_type).name in SAFETENSORS_TYPES
        if is_float and _split_name(tensor.name)[1]:
            tensors[tensor.name] = tensor
    sizes: dict[str, set[int]] = {}
    """Layer -> sizes of axes that all its factors have; the rank is the smallest."""
    for name, tensor in tensors.items():
        if FACTOR_NAME.search(name):
            layer = _split_name(name)[0]
            sizes[layer] = sizes.get(layer, set(tensor.dims)).intersection(tensor.dims)
    weights = {}
    for name, tensor in tensors.items():
        layer, part = _split_name(name)
        dims = list(tensor.dims)
        rank = min(sizes.get(layer, ()), default=0)
        axis = None
        if FACTOR_NAME.search(name) and dims.count(rank) == 1:
            axis = dims.index(rank)
        weights[name] = AdapterWeight(name, f"{layer}.{part}", axis, tuple(readers.get(name, ())))
    return weights


class _Finder:
    """Finds the adapters in a graph that are a pair of products of low rank."""

    def __init__(self, graph: GraphProto) -> None:
        self._graph = graph
        self._weights = by_name(graph.initializer)
        self._sources = producers(graph)
        self._readers = consumers(graph)
        self._outputs = names_of(graph.output)

    def adapters(self) -> Iterator[list[_Part]]:
        """Yield the weights of each adapter: the two matrices, then what scales or shifts their product."""
        for second in self._graph.node:
            first = self._first_product(second)
            if first is None:
                continue
            axes = (1 ^ _is_transposed(first), int(_is_transposed(second)))
            matrices = (_matrix(first), _matrix(second))
            rank = self._weights[matrices[0]].dims[axes[0]]
            if rank >= max(self._weights[name].dims[1 - axis] for name, axis in zip(matrices, axes, strict=True)):
                continue
            vectors = self._vectors(first, second)
            if vectors is None and any("lora" in name.lower() for name in (*matrices, first.name, second.name)):
                vectors = []
            if vectors is not None:
                first_part = _Part("lora_A.weight", first, matrices[0], axes[0])
                yield [first_part, _Part("lora_B.weight", second, matrices[1], axes[1]), *vectors]

    def _first_product(self, second: NodeProto) -> NodeProto | None:
        """The product or lookup whose result only this product reads; None for all other nodes."""
        if not self._is_product(second):
            return None
        first = self._sources.get(second.input[0])
        if first is None or not (self._is_product(first) or self._is_lookup(first)):
            return None
        if first.output[0] in self._outputs or len(self._readers[first.output[0]]) > 1:
            return None
        return first

    def _is_product(self, node: NodeProto) -> bool:
        """Tell if a node only multiplies a value with a matrix of the model."""
        return node.op_type in PRODUCTS and len(node.input) == 2 and self._is_matrix(node.input[1])

    def _is_lookup(self, node: NodeProto) -> bool:
        """Tell if a node takes rows of a matrix of the model, as a product with one-hot vectors would."""
        return node.op_type == "Gather" and self._is_matrix(node.input[0]) and not attribute_values(node).get("axis", 0)

    def _is_matrix(self, name: str) -> bool:
        return name in self._weights and len(self._weights[name].dims) == 2

    def _is_vector(self, name: str) -> bool:
        return name in self._weights and np.prod(self._weights[name].dims) > 1

    def _vectors(self, first: NodeProto, second: NodeProto) -> list[_Part] | None:
        """The weights that scale or shift the product until it is added to a layer of the same input.

        None if it is added to no such layer.
        """
        parts: list[_Part] = []
        value = second.output[0]
        while len(self._readers.get(value, ())) == 1:
            node = self._readers[value][0]
            other = next((name for name in node.input if name != value), value)
            if node.op_type == "Add" and not self._is_vector(other):
                scales = self._layer_scales(other, _value(first), LAYER_DEPTH)
                if scales is None:
                    return None
                is_scaled = any(part.name == "lora_scale" for part in parts)
                return [*parts, *scales] if is_scaled else parts
            if node.op_type not in (*PASSED, "Add"):
                break
            if self._is_vector(other):
                parts.append(_Part("lora_B.bias" if node.op_type == "Add" else "lora_scale", node, other))
            value = node.output[0]
        return None

    def _layer_scales(self, value: str, read: str, depth: int) -> list[_Part] | None:
        """The weights that scale a layer on its way to `value`; None if no layer that reads `read` is so near."""
        node = self._sources.get(value)
        if node is None or not depth:
            return None
        if node.op_type in LAYERS and read in node.input:
            return []
        if node.op_type not in (*PASSED, "Add", "Sub"):
            return None
        for name in node.input:
            scales = self._layer_scales(name, read, depth - 1)
            if scales is not None:
                factors = [other for other in node.input if node.op_type == "Mul" and self._is_vector(other)]
                return [*scales, *(_Part("lora_base_scale", node, factor) for factor in factors)]
        return None


def _value(node: NodeProto) -> str:
    """The input of a product or a lookup that is no weight."""
    return str(node.input[node.op_type == "Gather"])


def _matrix(node: NodeProto) -> str:
    """The input of a product or a lookup that is a matrix."""
    return str(node.input[node.op_type != "Gather"])


def _is_transposed(node: NodeProto) -> bool:
    return bool(attribute_values(node).get("transB", 0))


def make_inputs(model: ModelProto, weights: list[AdapterWeight], defaults: str) -> dict[str, np.ndarray]:
    """Turn the weights of adapters into inputs of open rank, in place.

    Args:
        model: the model.
        weights: the weights.
        defaults: see `ExtractAdapters`.

    Returns:
        The weights by the names of the inputs.
    """
    graph = model.graph
    replaced = {weight.tensor for weight in weights}
    names = value_names(model) - replaced
    tensors = by_name(graph.initializer)
    extracted: dict[str, np.ndarray] = {}
    for weight in weights:
        tensor = tensors[weight.tensor]
        name = new_name(weight.name, names)
        array = extracted[name] = numpy_helper.to_array(tensor)
        rename_inputs(weight.readers, {weight.tensor: name})
        shape: list[int | str] = list(tensor.dims)
        if weight.rank_axis is not None:
            shape[weight.rank_axis] = RANK
            if defaults == "empty":
                array = np.delete(array, np.s_[:], weight.rank_axis)
        graph.input.append(helper.make_tensor_value_info(name, tensor.data_type, shape))
        if defaults != "none":
            graph.initializer.append(numpy_helper.from_array(array, name))
    unread = replaced - read_names(graph)
    replace_items(graph.initializer, [tensor for tensor in graph.initializer if tensor.name not in unread])
    del graph.value_info[:]  # shapes with the rank of this adapter
    model.ir_version = max(model.ir_version, 4)
    return extracted


def _layer_name(node: NodeProto) -> str:
    """The name of the layer that a node belongs to, as the exporter has left it; empty if it has not."""
    scopes = next((entry.value for entry in node.metadata_props if entry.key == SCOPES), "")
    modules = re.findall(r"'([^']*)'", scopes)[:-1]
    if modules:
        return _split_name(modules[-1])[0]
    return _split_name(node.name.rpartition("/")[0])[0]


def _split_name(name: str) -> tuple[str, str]:
    """The layer and the weight, with dots, in the name of an adapter's weight, or of a module; the latter may be empty.

    Leaves out the names of PEFT's wrappers and of the adapter.
    """
    parts = [part for part in re.split(r"[./]+", name) if part and not re.fullmatch(r"default(_\d+)*", part)]
    if "base_model" in parts:
        parts = parts[parts.index("base_model") + 1 :]
    while parts and parts[0] == "model":
        parts = parts[1:]
    for position, part in enumerate(parts):
        if WEIGHT_NAME.fullmatch(part):
            return ".".join(parts[:position]), ".".join(parts[position:])
    return ".".join(parts), ""


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
