"""The facts about a model that planning uses: frozen, as JSON, collected by a worker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from autoopt import json_codec
from autoopt.errors import InputError, did_you_mean
from autoopt.json_codec import JsonObject, JsonValue
from autoopt.model.roles import Dimension, Kind, Role, input_roles, output_roles

QUANTIZERS: Final = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear")
FLOAT_FORMS: Final[Mapping[str, str]] = {
    "QLinearConv": "Conv",
    "QLinearMatMul": "MatMul",
    "ConvInteger": "Conv",
    "MatMulInteger": "MatMul",
    "com.microsoft::MatMulIntegerToFloat": "MatMul",
    "com.microsoft::DynamicQuantizeMatMul": "MatMul",
    "com.microsoft::DynamicQuantizeLSTM": "LSTM",
    "com.microsoft::MatMulNBits": "MatMul",
    "com.microsoft::GatherBlockQuantized": "Gather",
    "com.microsoft::QLinearConv": "Conv",
    "com.microsoft::QAttention": "com.microsoft::Attention",
    "com.microsoft::QGemm": "Gemm",
    "com.microsoft::QLinearAdd": "Add",
    "com.microsoft::QLinearMul": "Mul",
    "com.microsoft::QLinearConcat": "Concat",
    "com.microsoft::QLinearWhere": "Where",
    "com.microsoft::QLinearSigmoid": "Sigmoid",
    "com.microsoft::QLinearSoftmax": "Softmax",
    "com.microsoft::QLinearLeakyRelu": "LeakyRelu",
    "com.microsoft::QLinearAveragePool": "AveragePool",
    "com.microsoft::QLinearGlobalAveragePool": "GlobalAveragePool",
}
"""Integer operator -> float operator, as an `Inspection` names them."""
FUSED_LAYERS: Final[Mapping[str, str]] = {
    "com.microsoft::FusedConv": "Conv",
    "com.microsoft::FusedGemm": "Gemm",
    "com.microsoft::FusedMatMul": "MatMul",
}
"""Layer as onnxruntime saves it in optimized models -> the operator of ONNX in it."""
PLAIN_FORMS: Final[Mapping[str, str]] = {**FLOAT_FORMS, **FUSED_LAYERS}
QUANTIZED_OPS: Final = frozenset((*QUANTIZERS, *FLOAT_FORMS))


def with_plain_forms(op_counts: Mapping[str, int]) -> dict[str, int]:
    """Nodes by operator, with the plain forms of integer operators and fused layers beside them."""
    counts = Counter(op_counts)
    for op in PLAIN_FORMS.keys() & op_counts.keys():
        counts[PLAIN_FORMS[op]] += op_counts[op]
    return dict(sorted(counts.items()))


@dataclass(frozen=True)
class ValueSpec:
    """An input or output of a model."""

    name: str
    dtype: str
    """As numpy names it (`float32`, `str`), or the kind of a value that is not a tensor (`sequence`)."""
    shape: tuple[Dimension, ...] | None
    """None if not even the rank is known."""

    @property
    def dims(self) -> tuple[Dimension, ...]:
        """The dimensions; none if not even their number is known."""
        return self.shape or ()

    @property
    def is_float(self) -> bool:
        return self.dtype in ("float16", "float32", "float64")

    @property
    def is_integer(self) -> bool:
        return self.dtype.removeprefix("u") in ("int8", "int16", "int32", "int64")


@dataclass(frozen=True)
class Inspection:
    """A model's interface and content. Names are the model's own: clean them (`errors.one_line`) to show them."""

    inputs: tuple[ValueSpec, ...]
    """Without initializers that are listed as inputs too."""
    outputs: tuple[ValueSpec, ...]
    opsets: Mapping[str, int]
    """Version by domain; the default domain is `""`."""
    ir_version: int
    op_counts: Mapping[str, int]
    """Nodes by operator (`Conv`, `com.microsoft::Gelu`), subgraphs and model-local functions included."""
    parameters: int
    """Elements of all weights: initializers and constants."""
    bytes: int
    """Of the model and its external data."""
    dynamic_dims: tuple[str, ...] = ()
    """Symbolic sizes of inputs by name; `input[axis]` for one without a name."""
    external_data: bool = False
    functions: int = 0
    """Number of model-local functions."""
    weight_dtypes: Mapping[str, int] = field(default_factory=dict)
    """Elements of weights by type."""
    layer_parameters: Mapping[str, int] = field(default_factory=dict)
    """Elements of the weights of layers by operator: Conv, MatMul, LSTM, ...; integer layers count as float ones."""
    view_pairs: int = 0
    """Operators that only change the shape of a value, right behind another one of them."""
    overridable: tuple[str, ...] = ()
    """Weights that callers may replace, because the model lists them as inputs too."""
    repairs: tuple[str, ...] = ()
    """A few words on each fault of the file that was mended when the model was taken in. Not stored."""
    narrow_convolutions: int = 0
    """Convolutions along one axis: of signals, or of images with kernels of one column."""
    body_counts: Mapping[str, int] = field(default_factory=dict)
    """Nodes in bodies of If, Loop and Scan, by operator."""
    table_lengths: Mapping[str, int] = field(default_factory=dict)
    """Length of the table that an input indexes, as token ids do; the shortest one if there are several."""
    input_roles: Mapping[str, Role] = field(default_factory=dict)
    """Roles of the inputs; inferred if not given."""
    output_roles: Mapping[str, Role] = field(default_factory=dict)

    def __post_init__(self) -> None:
        roles = self.input_roles or input_roles(self.inputs, self.table_lengths)
        object.__setattr__(self, "input_roles", roles)
        object.__setattr__(self, "output_roles", output_roles(self.outputs, self.inputs, roles))

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the inputs, in the model's order."""
        return tuple(spec.name for spec in self.inputs)

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the outputs, in the model's order."""
        return tuple(spec.name for spec in self.outputs)

    @property
    def ops(self) -> frozenset[str]:
        """The operators that occur, and the plain forms of integer operators and fused layers."""
        return frozenset(with_plain_forms(self.op_counts))

    @property
    def traits(self) -> frozenset[str]:
        """Properties that passes may need besides operators: `local functions`, `int64 inputs`."""
        traits = set()
        if self.functions:
            traits.add("local functions")
        if any(spec.dtype == "int64" for spec in self.inputs):
            traits.add("int64 inputs")
        return frozenset(traits)

    def with_roles(self, given: Mapping[str, Kind]) -> Inspection:
        """The inspection with the kinds of inputs that the user gives.

        Raises:
            InputError: There is no such input, or no such kind.
        """
        for name in given:
            if name not in self.input_names:
                remedy = did_you_mean(name, self.input_names)
                raise InputError(f"no input {name!r}", where="measurement.roles", remedy=remedy)
        return replace(self, input_roles=input_roles(self.inputs, self.table_lengths, given)) if given else self

    def has_same_graph(self, other: Inspection) -> bool:
        """True if two models differ only in the values of their weights, as far as their inspections show."""
        mine = (self.inputs, self.outputs, self.opsets, self.op_counts, self.parameters, self.weight_dtypes)
        theirs = (other.inputs, other.outputs, other.opsets, other.op_counts, other.parameters, other.weight_dtypes)
        return mine == theirs

    def to_json(self) -> dict[str, JsonValue]:
        return json_codec.to_json(self)

    @staticmethod
    def from_json(document: JsonObject) -> Inspection:
        return json_codec.from_json(Inspection, document)
