"""Adapters of fine-tuned models: their weights made inputs of the model, and stored in a file beside it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from autoopt.model import io
from autoopt.model.lazy_imports import ir, np
from autoopt.passes.base import Pass, Refused
from autoopt.passes.base.contract import RUNTIME_BOUND
from autoopt.passes.base.conversion import to_ir, to_proto
from autoopt.passes.cleanup.graph_cleanup import remove_identities
from autoopt.passes.onnx_tools.gemm import is_weight
from autoopt.passes.onnx_tools.graphs import new_name
from autoopt.passes.onnx_tools.values import taken_names

if TYPE_CHECKING:
    from numpy import ndarray

ADAPTER_FILE: Final = "adapter_weights"
RANK: Final = "lora_r"
"""The dimension of the new inputs that may differ between adapters."""
PRODUCTS: Final = ("MatMul", "Gemm")
PASSED: Final = ("Identity", "Cast", "Dropout", "Mul", "Div")
"""Operators between an adapter and the layer to which it is added: they scale its result or convert it."""
LAYERS: Final = (*PRODUCTS, "Gather", "MatMulNBits", "GatherBlockQuantized")
LAYER_DEPTH: Final = 3
"""Most operators between that layer and the addition."""
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

    value: ir.Value
    name: str
    rank_axis: int | None
    readers: tuple[ir.Usage, ...]


class ExtractAdapters(Pass):
    """Makes the weights of adapters (LoRA, DoRA, LoHa, LoKr) inputs of the model, and stores them in a file beside it.

    One model then serves many adapters: onnxruntime takes such a file (`LoraAdapter`, `RunOptions.add_active_adapter`)
    or the arrays as inputs. Adapters are found by PEFT's names for their weights; LoRA also without names, as two
    products of low rank that are added to a layer of the same input. The rank of the inputs is open. To keep the names
    of the others, PyTorch's exporter needs `optimize=False`. Must be the last pass: others store the model without the
    file, and take inputs with a default for weights.
    """

    version = 3
    depends_on = "model"
    tolerance = "lossless"
    conflicts = RUNTIME_BOUND
    needs_ops = PRODUCTS
    libraries = ("onnx", "onnx-ir", "onnxruntime")

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
        loaded = to_ir(io.load(model))
        remove_identities(loaded)  # exporters write them for equal weights
        weights = find_adapter_weights(loaded.graph)
        if not weights:
            raise Refused(
                "the model has no adapters in float: no weights with PEFT's names, and no LoRA beside a layer"
            )
        if self.defaults == "empty" and any(weight.rank_axis is None for weight in weights):
            raise Refused("defaults empty is for LoRA and LoHa: other adapters always change the model")
        self._weights = make_inputs(loaded, weights, self.defaults)
        path = io.save(to_proto(loaded), self.context.work / "extracted")
        file = path.with_name(f"{ADAPTER_FILE}.{self.file_format}")
        WRITERS[self.file_format](self._weights, file)
        shapes = {name: list(array.shape) for name, array in self._weights.items()}
        self.context.reports["extract_adapters"] = {"file": file.name, "inputs": shapes}
        return path.parent

    def feeds(self, feeds: dict[str, ndarray]) -> dict[str, ndarray] | None:
        return {**feeds, **self._weights}


def find_adapter_weights(graph: ir.Graph) -> list[AdapterWeight]:
    """Find the weights of adapters by their names, and those of LoRA by their place in the graph."""
    named = _named_weights(graph)
    weights: dict[tuple[ir.Value, str], AdapterWeight] = {}
    for number, pair in enumerate(_low_rank_pairs(graph)):
        stated = (_split_name(str(value.name))[0] for value in map(_matrix, pair) if value in named)
        layer = next(stated, "") or _layer_name(pair[0])
        for node, part in zip(pair, "AB", strict=True):
            matrix, name = _matrix(node), f"{layer or f'adapter_{number}'}.lora_{part}.weight"
            weight = AdapterWeight(matrix, name, _rank_axis(node, is_first=part == "A"), _own_uses(node, layer))
            weights.setdefault((matrix, name), weight)
    return [*named.values(), *(weight for (matrix, _), weight in weights.items() if matrix not in named)]


def _own_uses(node: ir.Node, layer: str) -> tuple[ir.Usage, ...]:
    """The uses of the matrix of a product by a layer, or by the product if the layer has no name.

    Exporters store equal weights once, such as the zeros of new adapters, so others may read it too.
    """
    uses = _matrix(node).uses()
    return tuple(use for use in uses if use.node is node or (layer and _layer_name(use.node) == layer))


def _named_weights(graph: ir.Graph) -> dict[ir.Value, AdapterWeight]:
    """The weights with PEFT's names."""
    values = [value for value in graph.initializers.values() if _is_float(value) and _split_name(str(value.name))[1]]
    sizes: dict[str, set[int]] = {}
    """Layer -> sizes of axes that all its factors have; the rank is the smallest."""
    for value in filter(_is_factor, values):
        layer, dims = _split_name(str(value.name))[0], _dims(value)
        sizes[layer] = sizes.get(layer, set(dims)).intersection(dims)
    weights = {}
    for value in values:
        layer, part = _split_name(str(value.name))
        rank, dims = min(sizes.get(layer, ()), default=0), _dims(value)
        axis = dims.index(rank) if _is_factor(value) and dims.count(rank) == 1 else None
        weights[value] = AdapterWeight(value, f"{layer}.{part}", axis, tuple(value.uses()))
    return weights


def _is_float(value: ir.Value) -> bool:
    """Tell if a value has a known shape and a type that the files of adapters have."""
    return value.shape is not None and value.dtype is not None and value.dtype.numpy().name in SAFETENSORS_TYPES


def _is_factor(value: ir.Value) -> bool:
    return bool(FACTOR_NAME.search(str(value.name)))


def _dims(value: ir.Value) -> list[int]:
    assert value.shape is not None
    return list(value.shape.numpy())


def _low_rank_pairs(graph: ir.Graph) -> Iterator[tuple[ir.Node, ir.Node]]:
    """Yield the two products, or the lookup and the product, of each adapter that is beside a layer."""
    for second in filter(_is_product, graph):
        value = second.inputs[0]
        first = None if value is None or value.is_graph_output() or len(value.uses()) > 1 else value.producer()
        if first is None or not (_is_product(first) or _is_lookup(first)) or not _is_low_rank(first, second):
            continue
        names = " ".join(str(each.name) for each in (first, second, _matrix(first), _matrix(second)))
        if "lora" in names.lower() or _joins_layer(second, _data(first)):
            yield first, second


def _is_low_rank(first: ir.Node, second: ir.Node) -> bool:
    """Tell if the values between two products have fewer elements than those before or behind."""
    inner_axis, outer_axis = _rank_axis(first, is_first=True), 1 - _rank_axis(second, is_first=False)
    before, behind = _dims(_matrix(first)), _dims(_matrix(second))
    return before[inner_axis] < max(before[1 - inner_axis], behind[outer_axis])


def _is_product(node: ir.Node) -> bool:
    """Tell if a node only multiplies a value with a matrix of the model."""
    return node.op_type in PRODUCTS and len(node.inputs) == 2 and _is_matrix(node.inputs[1])


def _is_lookup(node: ir.Node) -> bool:
    """Tell if a node takes rows of a matrix of the model, as a product with one-hot vectors would."""
    return node.op_type == "Gather" and _is_matrix(node.inputs[0]) and not node.attributes.get_int("axis", 0)


def _is_matrix(value: ir.Value | None) -> bool:
    return value is not None and is_weight(value) and value.shape is not None and len(value.shape) == 2


def _matrix(node: ir.Node) -> ir.Value:
    """The input of a product or a lookup that is a matrix."""
    value = node.inputs[node.op_type != "Gather"]
    assert value is not None
    return value


def _data(node: ir.Node) -> ir.Value | None:
    """The input of a product or a lookup that is no weight."""
    return node.inputs[node.op_type == "Gather"]


def _rank_axis(node: ir.Node, *, is_first: bool) -> int:
    return int(is_first != bool(node.attributes.get_int("transB", 0)))


def _joins_layer(second: ir.Node, read: ir.Value | None) -> bool:
    """Tell if a product, scaled on the way, is added to a layer that reads this value."""
    value = second.outputs[0]
    while len(value.uses()) == 1:
        node = value.uses()[0].node
        if node.op_type == "Add":
            others = [other for other in node.inputs if other is not value]
            return any(_is_layer(other, read, LAYER_DEPTH) for other in others)
        if node.op_type not in PASSED:
            break
        value = node.outputs[0]
    return False


def _is_layer(value: ir.Value | None, read: ir.Value | None, depth: int) -> bool:
    """Tell if a layer that reads a value is so near to another one."""
    node = None if value is None else value.producer()
    if node is None or not depth:
        return False
    if node.op_type in LAYERS:
        return read in node.inputs
    return node.op_type in (*PASSED, "Add") and any(_is_layer(each, read, depth - 1) for each in node.inputs)


def make_inputs(model: ir.Model, weights: Sequence[AdapterWeight], defaults: str) -> dict[str, ndarray]:
    """Turn the weights of adapters into inputs of open rank, in place; `defaults` as in `ExtractAdapters`.

    Returns:
        The weights by the names of the inputs.
    """
    graph = model.graph
    for value in chain.from_iterable(node.outputs for node in graph.all_nodes()):
        if not value.is_graph_output():
            value.shape = None  # it has the rank of this adapter
    taken = taken_names(model) - {str(weight.value.name) for weight in weights}
    extracted: dict[str, ndarray] = {}
    for weight in weights:
        name = new_name(weight.name, taken)
        assert weight.value.const_value is not None
        extracted[name] = weight.value.const_value.numpy()
        new = _input_for(weight, name, extracted[name], defaults)
        for use in weight.readers:
            use.node.replace_input_with(use.idx, new)
        if not weight.value.uses():
            graph.initializers.pop(str(weight.value.name), None)
        graph.inputs.append(new)
        if new.const_value is not None:
            graph.register_initializer(new)
    model.ir_version = max(model.ir_version, 4)
    return extracted


def _input_for(weight: AdapterWeight, name: str, array: ndarray, defaults: str) -> ir.Value:
    """The input in place of a weight, with its initial value unless callers must give it."""
    shape: list[int | str] = list(array.shape)
    if weight.rank_axis is not None:
        shape[weight.rank_axis] = RANK
        if defaults == "empty":
            array = np.delete(array, np.s_[:], weight.rank_axis)
    tensor = None if defaults == "none" else ir.tensor(array, name=name)
    return ir.Value(name=name, type=weight.value.type, shape=ir.Shape(shape), const_value=tensor)


def _layer_name(node: ir.Node) -> str:
    """The name of the layer that a node belongs to, as the exporter has left it; empty if it has not."""
    modules = re.findall(r"'([^']*)'", node.metadata_props.get(SCOPES, ""))[:-1]
    if modules:
        return _split_name(modules[-1])[0]
    return _split_name((node.name or "").rpartition("/")[0])[0]


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


def _write_onnx_adapter(weights: Mapping[str, ndarray], file: Path) -> None:
    from onnxruntime import AdapterFormat, OrtValue

    adapter = AdapterFormat()
    adapter.set_adapter_version(1)
    adapter.set_model_version(1)
    adapter.set_parameters({name: OrtValue.ortvalue_from_numpy(array) for name, array in weights.items()})
    adapter.export_adapter(str(file))


def _write_safetensors(weights: Mapping[str, ndarray], file: Path) -> None:
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
