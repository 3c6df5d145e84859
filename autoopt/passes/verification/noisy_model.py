"""A copy of a model whose floating-point operations carry random rounding errors.

The method is Monte Carlo arithmetic (D. S. Parker, "Monte Carlo Arithmetic: exploiting randomness in floating-point
arithmetic", UCLA, 1997): run several times with random errors the size of a few roundings, a computation shows by the
spread of its results how many of their digits it determines.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Final

from autoopt.model.lazy_imports import helper, np, numpy_helper, onnx
from autoopt.model.repairs import allow_constants
from autoopt.passes.onnx_tools.graphs import constant_tensors, replace_items, values_from_inputs, walk_nodes

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto

MIN_OPSET: Final = 7
"""First operator set with the broadcasting that the noise needs."""
SLICES: Final = 10
"""First operator set that slices at computed positions."""
ALLOWS_ZERO: Final = 14
"""First operator set that can reshape to any empty shape."""
STARTS: Final = 1 << 15
"""Number of positions in a pool at which the numbers of an operator may start."""
LARGEST_CONSTANT: Final = 1 << 16
"""Constants of more elements carry no noise of their own: the noise of what they are multiplied with is enough."""
NOISE: Final[Mapping[str, float]] = {"FLOAT": 1e-6, "DOUBLE": 2e-15, "FLOAT16": 2e-3, "BFLOAT16": 1.6e-2}
"""Largest error of one operation by element type, as a share of the value: 2 to 8 units in the last place, because
blocked sums and polynomial approximations differ by a few."""

_EXACT: Final = """
    Abs And ArgMax ArgMin ArrayFeatureExtractor Binarizer Ceil Clip Compress Concat ConcatFromSequence Constant
    ConstantOfShape DepthToSpace Dropout Equal Expand EyeLike FeatureVectorizer Flatten Floor Gather GatherElements
    GatherND GlobalMaxPool Greater GreaterOrEqual Hardmax Identity If Imputer IsInf IsNaN LabelEncoder Less LessOrEqual
    Loop Max MaxPool MaxRoiPool MaxUnpool Min Mod Neg NonMaxSuppression NonZero Not OneHot OneHotEncoder Or Pad
    QuantizeLinear Range ReduceMax ReduceMin Relu Reshape ReverseSequence Round Scan Scatter ScatterElements ScatterND
    SequenceAt Shape Sign Size Slice SpaceToDepth Split SplitToSequence Squeeze Tile TopK Transpose Trilu Unique
    Unsqueeze Where Xor ZipMap
    """
EXACT_OPS: Final = frozenset(_EXACT.split())
"""Operators that move, compare or select values: what they hand on is as exact as what they got."""
_SUMMING: Final = """
    Add Attention AveragePool BatchNormalization BiasGelu Conv ConvTranspose CumSum Einsum FastGelu FusedConv FusedGemm
    FusedMatMul Gelu Gemm GlobalAveragePool GlobalLpPool GroupNormalization GRU InstanceNormalization LRN
    LayerNormalization LinearClassifier LinearRegressor LogSoftmax LpNormalization LpPool LSTM MatMul Mean
    MeanVarianceNormalization QuickGelu RMSNormalization RNN ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMean
    ReduceSum ReduceSumSquare Scaler SVMClassifier SVMRegressor SimplifiedLayerNormalization SkipLayerNormalization
    DFT STFT Softmax Softplus Sub Sum
    """
SUMMING_OPS: Final = frozenset(_SUMMING.split())
"""Operators whose terms can cancel: their error is a share of the terms, not only of the result."""
TWO_TERM_OPS: Final = frozenset(("Add", "Sub", "Sum"))
"""Summing operators that are exact on exact terms: a mask `1 - x` is 0 without any error."""
UNIT_OPS: Final = frozenset(("Sigmoid", "GRU", "LSTM", "RNN"))
"""Operators with an error that is a share of 1, at which they saturate: onnxruntime's logistic function is off by up to
1e-7 near 0."""
LOOSE_OPS: Final[Mapping[str, float]] = {"DFT": 100.0, "STFT": 100.0}
"""Summing operators with larger errors, as multiples of the noise: onnxruntime's transforms of sizes that are no powers
of 2 are off by 1e-5 of the largest result."""
_JUMPING: Final = """
    ArgMax ArgMin Ceil DynamicQuantizeLinear DynamicQuantizeLSTM Equal Floor Greater GreaterOrEqual Hardmax Less
    LessOrEqual MatMulIntegerToFloat Mod NonMaxSuppression NonZero QuantizeLinear Round Sign TopK TreeEnsemble
    TreeEnsembleClassifier TreeEnsembleRegressor Unique
    """
JUMPING_OPS: Final = frozenset(_JUMPING.split())
"""Operators whose result can jump where its input changes by a rounding."""


@dataclass(frozen=True)
class Pool:
    """Random numbers that many operators share, each a slice of them: an input of the noisy copy.

    Drawing numbers for each operator takes ten times as long as the model itself.
    """

    name: str
    low: float
    high: float
    is_double: bool
    """True for float64, else float32."""


@dataclass(frozen=True)
class NoisyModel:
    """The noisy copy of a model."""

    model: ModelProto
    pools: tuple[Pool, ...]
    """Inputs of the copy in addition to those of the model: vectors, longer than the largest tensor by `STARTS`."""
    places: int
    """Number of places where noise enters."""
    jumps: bool
    """True if outputs can jump where a value changes by a rounding."""


def noisy_model(model: ModelProto, types: Mapping[str, int]) -> NoisyModel | None:
    """Copy `model` with noise on all values that depend on its inputs and are rounded.

    The results of each rounding operator are multiplied by 1 + r, and so are the terms of each operator that sums; r
    comes from pools that are drawn anew for each run, uniformly from plus or minus the amplitude of the type. Values
    that depend on shapes only carry no noise, so that no shape changes.

    `types` has the element type of each value that a node computes, if it is a tensor.

    Returns:
        None for a model of an old operator set, and for one that computes in subgraphs or functions, whose values have
        no known type.
    """
    stated = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), None)
    opset = ALLOWS_ZERO if stated is None else stated
    inner = list(walk_nodes(model.graph))[len(model.graph.node) :]
    computes_inside = bool(model.functions) or any(node.op_type not in EXACT_OPS for node in inner)
    if opset < MIN_OPSET or computes_inside:
        return None
    copy = deepcopy(model)
    if stated is None:
        copy.opset_import.append(helper.make_opsetid("", opset))
    varying = values_from_inputs(model)
    constants = _small_constants(model)
    writer = _NoiseWriter({**_given_types(model), **types}, varying | constants, _fractions(model, constants), opset)
    nodes: list[NodeProto] = []
    jumps = False
    for node in copy.graph.node:
        if varying.isdisjoint(node.output):
            nodes.append(node)
            continue
        jumps |= writer.jumps(node)
        nodes += writer.noisy(node)
    replace_items(copy.graph.node, nodes)
    copy.graph.initializer.extend(writer.constants())
    copy.graph.input.extend(writer.pool_inputs())
    allow_constants(copy)
    return NoisyModel(copy, tuple(writer.pools.values()), writer.places, jumps)


@dataclass
class _NoiseWriter:
    """Writes nodes with noise around them."""

    types: Mapping[str, int]
    """Element type of each value."""
    terms: frozenset[str]
    """The values that carry noise as terms of a sum."""
    inexact: set[str]
    """The values that carry noise even as terms of a sum of two: constants with fractions, and all that was rounded."""
    opset: int
    places: int = 0
    pools: dict[str, Pool] = field(default_factory=dict)
    """Pools by name."""

    def noisy(self, node: NodeProto) -> list[NodeProto]:
        """The node with noise on its terms and results, in the order of execution. Renames its terms and results."""
        after: list[NodeProto] = []
        inputs = list(node.input)
        before = self._noisy_terms(node) if node.op_type in SUMMING_OPS else []
        is_exact = self._is_exact(node)
        if not is_exact or not self.inexact.isdisjoint(inputs):
            self.inexact.update(node.output)
        if not is_exact:
            for position, name in enumerate(node.output):
                if name and self._amplitude(name):
                    exact = f"{name}__exact"
                    node.output[position] = exact
                    after += self._noise(exact, name, self.types[name], is_unit=node.op_type in UNIT_OPS)
        return [*before, node, *after]

    def _noisy_terms(self, node: NodeProto) -> list[NodeProto]:
        """Nodes that put noise on the terms of a sum, which gets them in place of its own."""
        nodes: list[NodeProto] = []
        terms: Container[str] = self.inexact if node.op_type in TWO_TERM_OPS else self.terms
        for position, name in enumerate(node.input):
            if name in terms and self._amplitude(name):
                term = f"{name}__term_{self.places}"
                nodes += self._noise(name, term, self.types[name], size=LOOSE_OPS.get(node.op_type, 1.0))
                node.input[position] = term
        return nodes

    def jumps(self, node: NodeProto) -> bool:
        """True for a node whose result can jump because a rounding moves its input over a boundary."""
        if self.inexact.isdisjoint(node.input):
            return False
        truncates = node.op_type == "Cast" and not self._amplitude(node.output[0])
        return node.op_type in JUMPING_OPS or truncates

    def constants(self) -> Iterator[TensorProto]:
        """The initializers that the noise uses."""
        starts = np.random.default_rng(0).integers(0, STARTS, self.places)
        for place, start in enumerate(starts):
            yield numpy_helper.from_array(np.array([start], np.int64), f"start__{place}")

    def pool_inputs(self) -> Iterator[ValueInfoProto]:
        """The inputs that the noise uses."""
        for pool in self.pools.values():
            kind = onnx.TensorProto.DOUBLE if pool.is_double else onnx.TensorProto.FLOAT
            yield helper.make_tensor_value_info(pool.name, kind, [f"length_of_{pool.name}"])

    def _is_exact(self, node: NodeProto) -> bool:
        if node.op_type == "Cast":
            # A cast to a shorter float rounds.
            return self._amplitude(node.output[0]) <= self._amplitude(node.input[0]) or not self._amplitude(
                node.input[0]
            )
        return node.op_type in EXACT_OPS

    def _amplitude(self, name: str) -> float:
        """Amplitude of the noise of a value; 0 if it is no float tensor."""
        return _amplitude_of(self.types.get(name, 0))

    def _noise(
        self, source: str, target: str, kind: int, *, is_unit: bool = False, size: float = 1.0
    ) -> list[NodeProto]:
        """Nodes that compute `target` from `source`, a tensor of type `kind`; `size` multiplies the noise."""
        amplitude = size * _amplitude_of(kind)
        product = target
        if is_unit:
            product = f"{target}__product"
        nodes, factor = self._draw(source, f"{target}__factor", kind, 1 - amplitude, 1 + amplitude)
        nodes.append(helper.make_node("Mul", [source, factor], [product]))
        if is_unit:
            # Not below the value, because a logistic function never is negative.
            added, offset = self._draw(source, f"{target}__offset", kind, 0.0, amplitude)
            nodes += added
            nodes.append(helper.make_node("Add", [product, offset], [target]))
        return nodes

    def _draw(self, like: str, name: str, kind: int, low: float, high: float) -> tuple[list[NodeProto], str]:
        """Nodes that yield random numbers in the shape of `like`, and the name of their result."""
        is_double = kind == onnx.TensorProto.DOUBLE
        place = self.places
        self.places += 1
        if self.opset < SLICES:
            nodes = [helper.make_node("RandomUniformLike", [like], [name], low=low, high=high, seed=float(place + 1))]
            if not is_double:
                nodes[0].attribute.append(helper.make_attribute("dtype", onnx.TensorProto.FLOAT))
        else:
            nodes = self._slice(like, name, self._pool(kind, low, high), place)
        if kind in (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE):
            return nodes, name
        # The runtime draws no numbers of 16 bits, and numpy has no bfloat16.
        return [*nodes, helper.make_node("Cast", [name], [f"{name}_cast"], to=kind)], f"{name}_cast"

    def _pool(self, kind: int, low: float, high: float) -> str:
        """The name of the pool of these numbers."""
        purpose = "offsets" if low == 0 else "factors"
        name = f"pool_{kind}_{purpose}_{high:.9g}__"
        self.pools.setdefault(name, Pool(name, low, high, kind == onnx.TensorProto.DOUBLE))
        return name

    def _slice(self, like: str, name: str, pool: str, place: int) -> list[NodeProto]:
        """Nodes that cut numbers in the shape of `like` from a pool."""
        shape = {"allowzero": 1} if self.opset >= ALLOWS_ZERO else {}
        return [
            helper.make_node("Shape", [like], [f"{name}_shape"]),
            helper.make_node("ReduceProd", [f"{name}_shape"], [f"{name}_size"], keepdims=1),
            helper.make_node("Add", [f"{name}_size", f"start__{place}"], [f"{name}_end"]),
            helper.make_node("Slice", [pool, f"start__{place}", f"{name}_end"], [f"{name}_slice"]),
            helper.make_node("Reshape", [f"{name}_slice", f"{name}_shape"], [name], **shape),
        ]


def _amplitude_of(kind: int) -> float:
    """Amplitude of the noise for an element type; 0 for types that are no floats of 16 bits or more."""
    if kind not in onnx.TensorProto.DataType.values():  # newer than the installed onnx
        return 0.0
    return NOISE.get(onnx.TensorProto.DataType.Name(kind), 0.0)


def _given_types(model: ModelProto) -> dict[str, int]:
    """Element types of the inputs and constants."""
    types = {value.name: value.type.tensor_type.elem_type for value in model.graph.input}
    types.update({tensor.name: tensor.data_type for tensor in constant_tensors(model.graph).values()})
    return types


def _small_constants(model: ModelProto) -> frozenset[str]:
    """Names of the constants with few enough elements to carry noise."""
    constants = constant_tensors(model.graph).items()
    return frozenset(name for name, tensor in constants if 0 < prod(tensor.dims) <= LARGEST_CONSTANT)


def _fractions(model: ModelProto, names: Container[str]) -> set[str]:
    """Those of the constants that are floats with a fractional part."""
    fractions = set()
    for name, tensor in constant_tensors(model.graph).items():
        if name in names and _amplitude_of(tensor.data_type):
            values = numpy_helper.to_array(tensor).astype(np.float64)
            if (values != np.floor(values)).any():
                fractions.add(name)
    return fractions
