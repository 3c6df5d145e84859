"""The graph that the runtime executes after its own optimizations: models that share it are equally fast.

Most rewrites that keep the outputs are among those that onnxruntime makes itself when it opens a model. To time two
such models until they are known to be equal takes seconds, and on a machine whose speed wanders it never ends.

Models with the same work are equally fast too, whatever the values of their weights: quantized models that differ in
their calibration have the same operators with weights of the same types and sizes. Dense kernels take the same time for
all values but denormal ones. Values count where they may change what is done: those of shapes and indices, of lengths
and masks, of scales that sizes are computed from, and whether a zero point is zero.
"""

from __future__ import annotations

import hashlib
import json
import math
import tempfile
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from autoopt.measure.request import EXECUTED_GRAPH, SOURCE_GRAPH, WORK, MeasureReply, MeasureRequest
from autoopt.model import io
from autoopt.model.model_file import ModelFile, size_of
from autoopt.model.session import OPTIMIZED_WEIGHTS, write_optimized
from autoopt.model.session_options import plain_options
from autoopt.model.split import is_split, weight_at

if TYPE_CHECKING:
    import numpy as np
    from onnx import GraphProto, NodeProto, TensorProto

LARGEST: Final = 256 << 20
"""Bytes of a model with its external data up to which writing its graph takes less time than measuring it."""
GRAPH_OPTIONS: Final = ("disabled_optimizers", "graph_optimization_level")
"""Session options whose effect the executed graph shows."""
EXPORT_CONFIG: Final = {OPTIMIZED_WEIGHTS: "weights"}
"""Configuration of a session that only writes its graph: weights of 1 kB or more go to a file of their own, which is
much cheaper to write and read than a protobuf. The graph of a split model refers to the weights that are stored."""


def executed_graphs(request: MeasureRequest) -> tuple[str, str]:
    """The digests of the graphs that the runtime executes for candidate and source, and of the options it does it with.

    A digest is empty if it is not known, or if equal graphs need not mean equal metrics. Those in the request are taken
    over.
    """
    if request.source is None or request.is_source or not request.compares_graphs:
        return "", ""
    graph, source_graph = request.executed_graphs or ("", "")
    return graph or _executed_graph_of(request.candidate).graph, source_graph or _executed_graph_of(
        request.source
    ).graph


def measure(request: MeasureRequest) -> MeasureReply:
    """Compute only the digests of the executed graphs, and of the candidate's work, in the reply's details."""
    graph, source_graph = executed_graphs(request)
    work = _executed_graph_of(request.candidate).work if graph else ""
    return MeasureReply(details={EXECUTED_GRAPH: graph, SOURCE_GRAPH: source_graph, WORK: work})


class _Digests(NamedTuple):
    """Digests of the graph that the runtime executes for a model; empty if it is not known."""

    graph: str = ""
    work: str = ""
    """Without the values of weights."""


def _executed_graph_of(model: ModelFile) -> _Digests:
    return _executed_graph(model.path, json.dumps(plain_options(model.session_options), sort_keys=True))


@lru_cache(maxsize=16)
def _executed_graph(path: str, session_options: str) -> _Digests:
    from onnx import numpy_helper

    if Path(path).suffix != ".onnx" or sum(size_of(path).values()) > LARGEST:
        return _Digests()
    options = json.loads(session_options)
    other_options = {name: value for name, value in options.items() if name not in GRAPH_OPTIONS}
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, "model.onnx")
        try:
            if is_split(path):
                write_optimized(path, target, options, as_stored=True)
            else:
                write_optimized(path, target, options, EXPORT_CONFIG)
            model = io.parse(target)
        except Exception:  # onnxruntime's exceptions share no class; opening the model again says what is wrong
            return _Digests()
        opsets = sorted((opset.domain, opset.version) for opset in model.opset_import)
        functions = [function.SerializeToString(deterministic=True).hex() for function in model.functions]
        content = partial(_content_digest, folder=Path(folder))
        terms = (repr(other_options), repr(opsets), *functions)
        work = ""
        if has_fixed_work(model.graph) and not functions:
            values = partial(numpy_helper.to_array, base_dir=str(Path(path).parent if is_split(path) else folder))
            work = _digest(*terms, _graph_digest(model.graph, {}, parts_that_count(model.graph, content, values)))
        return _Digests(_digest(*terms, _graph_digest(model.graph, {}, content)), work)


def _graph_digest(graph: GraphProto, outer: Mapping[str, str], content: Callable[[TensorProto], str]) -> str:
    """The digest of a graph by its structure and weights, whatever its values are called.

    `outer` has the digests of the values of enclosing graphs by name, `content` tells what counts of a weight.
    """
    values = dict(outer)
    parts: list[str] = []
    for index, value in enumerate(graph.input):
        # A model with a fixed batch takes other inputs than one without, so the sizes count.
        tensor_type = value.type.tensor_type
        sizes = [str(dimension.dim_value) for dimension in tensor_type.shape.dim]
        values[value.name] = _digest("input", str(index), f"{tensor_type.elem_type} {' '.join(sizes)}")
    for tensor in graph.initializer:
        values[tensor.name] = _digest(str(tensor.data_type), str(list(tensor.dims)), content(tensor))
        parts.append(values[tensor.name])
    for sparse in graph.sparse_initializer:
        elements = content(sparse.values), content(sparse.indices)
        values[sparse.values.name] = _digest("sparse", str(sparse.values.data_type), str(list(sparse.dims)), *elements)
        parts.append(values[sparse.values.name])
    for node in graph.node:
        digest = _node_digest(node, values, content)
        parts.append(digest)
        for index, name in enumerate(node.output):
            values[name] = f"{digest} {index}"
    # What is stored or computed twice counts twice, though the outputs are the same.
    return _digest(*[values[output.name] for output in graph.output], *sorted(parts))


def _node_digest(node: NodeProto, values: Mapping[str, str], content: Callable[[TensorProto], str]) -> str:
    """The digest of an operator and all that it is computed from."""
    from onnx import AttributeProto

    parts = [node.domain, node.op_type, *[values.get(name, name) for name in node.input]]
    for attribute in sorted(node.attribute, key=lambda attribute: attribute.name):
        if attribute.type == AttributeProto.GRAPH:
            parts.append(f"{attribute.name} {_graph_digest(attribute.g, values, content)}")
        else:
            parts.append(attribute.SerializeToString(deterministic=True).hex())
    return _digest(*parts)


def _content_digest(tensor: TensorProto, folder: Path) -> str:
    """The SHA-256 of the values of a tensor, wherever they are stored. Weights of split models are named by it."""
    from onnx import numpy_helper
    from onnx.external_data_helper import ExternalDataInfo

    if tensor.data_location != tensor.EXTERNAL:
        return hashlib.sha256(tensor.raw_data or numpy_helper.to_array(tensor).tobytes()).hexdigest()
    place = ExternalDataInfo(tensor)
    stored = weight_at(place.location)
    if stored:
        return stored
    with Path(folder, place.location).open("rb") as file:
        file.seek(place.offset or 0)
        return hashlib.sha256(file.read(place.length)).hexdigest()


def _digest(*parts: str) -> str:
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()


DOMAINS: Final = ("", "ai.onnx", "com.microsoft", "com.microsoft.nchwc")
"""Domains whose operators are known."""
BY_VALUES: Final = frozenset(
    [
        "NonZero",
        "NonMaxSuppression",
        "Unique",
        "Compress",
        "TopK",
        "Range",
        "RoiAlign",
        "MaxRoiPool",
        "MoE",
        "QMoE",
        "Mod",
    ]
)
"""Operators whose work depends on values that the model computes. So does that of all with a graph of their own."""
SIZES: Final = {
    "AffineGrid": (1,),
    "Attention": (3,),
    "BlackmanWindow": (0,),
    "CenterCropPad": (1,),
    "Col2Im": (1, 2),
    "ConstantOfShape": (0,),
    "DFT": (1, 2),
    "DynamicQuantizeLSTM": (4,),
    "Expand": (1,),
    "GRU": (4,),
    "HammingWindow": (0,),
    "HannWindow": (0,),
    "LSTM": (4,),
    "MaxUnpool": (2,),
    "MelWeightMatrix": (0, 1),
    "OneHot": (1,),
    "Pad": (1,),
    "QAttention": (5,),
    "RNN": (4,),
    "Reshape": (1,),
    "Resize": (1, 2, 3),
    "Slice": (1, 2, 4),
    "Split": (1,),
    "SplitToSequence": (1,),
    "STFT": (1, 3),
    "Tile": (1,),
    "Upsample": (1,),
}
"""Operators whose work depends on the values of these inputs: sizes, lengths of sequences, masks of rows. They are
fixed unless computed from weights."""
QUANTIZED: Final = frozenset(
    [
        "QLinearConv",
        "QLinearMatMul",
        "QGemm",
        "QLinearAdd",
        "QLinearMul",
        "QLinearConcat",
        "QLinearSigmoid",
        "QLinearLeakyRelu",
        "QLinearSoftmax",
        "QLinearGlobalAveragePool",
        "QLinearAveragePool",
        "QLinearReduceMean",
        "QuantizeLinear",
        "DequantizeLinear",
        "ConvInteger",
        "MatMulInteger",
        "MatMulIntegerToFloat",
        "DynamicQuantizeMatMul",
        "DynamicQuantizeLSTM",
        "QAttention",
        "MatMulNBits",
    ]
)
"""Quantized operators, whose scales, zero points and weights never are sizes."""
WEIGHTED: Final = QUANTIZED | frozenset(
    [
        "Conv",
        "FusedConv",
        "ConvTranspose",
        "MatMul",
        "FusedMatMul",
        "Gemm",
        "FusedGemm",
        "LSTM",
        "GRU",
        "RNN",
        "Attention",
        "MultiHeadAttention",
        "LayerNormalization",
        "SkipLayerNormalization",
        "SimplifiedLayerNormalization",
        "SkipSimplifiedLayerNormalization",
        "EmbedLayerNormalization",
        "BatchNormalization",
        "InstanceNormalization",
        "BiasGelu",
        "FastGelu",
    ]
)
"""Operators that do the same work for all values of their weights."""
ELEMENTWISE: Final = frozenset(("Add", "Sub", "Mul", "Div", "PRelu", "Gather"))
"""Operators for which that holds for weights of more than `FEW_VALUES`; fewer may be sizes."""
FEW_VALUES: Final = 16
_Use: TypeAlias = tuple[str, int]
BLOCK: Final = 1 << 20
"""Values looked at together, which bounds the memory."""


def has_fixed_work(graph: GraphProto) -> bool:
    """Tell if no operator's work depends on values that the model computes with weights of which not all counts."""
    uses = _uses(graph)
    computed = {tensor.name for tensor in graph.initializer if not _counts(tensor, uses.get(tensor.name, set()))}
    for node in graph.node:
        if _may_depend_on_values(node):
            return False
        if any(name in computed for index, name in enumerate(node.input) if index in SIZES.get(node.op_type, ())):
            return False
        if node.op_type not in ("Shape", "Size") and not computed.isdisjoint(node.input):
            computed.update(node.output)
    return True


def _may_depend_on_values(node: NodeProto) -> bool:
    """Tell if the work of a node may depend on any values: it is unknown, has a graph of its own, or counts them."""
    from onnx import AttributeProto

    if node.domain not in DOMAINS or node.op_type in BY_VALUES:
        return True
    return any(attribute.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS) for attribute in node.attribute)


def parts_that_count(
    graph: GraphProto, content: Callable[[TensorProto], str], values: Callable[[TensorProto], np.ndarray]
) -> Callable[[TensorProto], str]:
    """Make a function that tells what counts of a weight besides its type and sizes: its `content`, or less.

    `values` reads a weight.
    """
    uses = _uses(graph)

    def part(tensor: TensorProto) -> str:
        if _counts(tensor, uses.get(tensor.name, set())):
            return content(tensor)
        if tensor.data_type in (tensor.FLOAT, tensor.DOUBLE, tensor.BFLOAT16):
            return content(tensor) if _has_tiny(values(tensor)) else ""
        return _part_of_integers(tensor, content)

    return part


def _uses(graph: GraphProto) -> dict[str, set[_Use]]:
    """The inputs of operators that take each value, by the operator's type and the input's index; or "output"."""
    uses: dict[str, set[_Use]] = {output.name: {("output", 0)} for output in graph.output}
    for node in graph.node:
        for index, name in enumerate(node.input):
            uses.setdefault(name, set()).add((node.op_type, index))
    return uses


def _counts(tensor: TensorProto, uses: set[_Use]) -> bool:
    """Tell if all values of a weight count."""
    allowed = WEIGHTED | ELEMENTWISE if math.prod(tensor.dims) > FEW_VALUES else WEIGHTED
    if tensor.data_type == tensor.INT32:  # a bias, unless it counts something
        allowed = QUANTIZED
    if tensor.data_type in (tensor.INT64, tensor.BOOL, tensor.STRING):
        return True
    return any(op not in allowed or index in SIZES.get(op, ()) for op, index in uses)


def _has_tiny(values: np.ndarray) -> bool:
    """Tell if any value is so small that its square is denormal, which makes arithmetic many times slower.

    Such values have the exponents in the lowest quarter of the type's range.
    """
    import numpy as np

    bits = np.ravel(values).view(f"uint{8 * values.itemsize}")
    sign = bits.dtype.type(1 << (8 * values.itemsize - 1))
    for start in range(0, len(bits), BLOCK):
        magnitudes = bits[start : start + BLOCK] & ~sign
        if ((magnitudes > 0) & (magnitudes < sign // 4)).any():
            return True
    return False


def _part_of_integers(tensor: TensorProto, content: Callable[[TensorProto], str]) -> str:
    if len(tensor.dims) > 1 or tensor.data_type not in (tensor.INT8, tensor.UINT8):
        return ""
    # It may be a zero point, and there are shorter ways if that is zero.
    if tensor.data_location == tensor.EXTERNAL:
        return content(tensor)
    return "other" if any(tensor.raw_data) or any(tensor.int32_data) else "zero"
