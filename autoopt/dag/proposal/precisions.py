"""The table execution provider x precision -> nodes of a proposal, or the reason why there are none.

The CPU's rows come from measurements; the other providers' from their documentation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from autoopt.space import Value
from autoopt.spec.proposal_options import PRECISIONS

CPU: Final = "CPUExecutionProvider"
CUDA: Final = "CUDAExecutionProvider"
TENSORRT: Final = "TensorrtExecutionProvider"
DIRECTML: Final = "DmlExecutionProvider"
OPENVINO: Final = "OpenVINOExecutionProvider"
QNN: Final = "QNNExecutionProvider"


@dataclass(frozen=True)
class Method:
    """The implementation of one precision on one provider.

    `nodes`: alternatives of the precision stage, by node id of the template. `text` tells the reader about them, with
    `{nodes}` for the ones that are tried; without nodes, it is the reason. `auto`: tried if no precision is requested.
    """

    nodes: tuple[str, ...]
    text: str
    auto: bool = True


@dataclass(frozen=True)
class ProviderProfile:
    """The optimizations that an execution provider can use."""

    methods: Mapping[str, Method]
    """By precision."""
    fixed: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)
    """Node id -> parameters that are not searched for this provider."""
    fuses: bool = False
    """True if it runs onnxruntime's fused operators, so that fusing ahead of time makes sense."""
    static_shapes: bool = False
    """True if it accepts fixed shapes only."""

    def chosen(self, precision: str | None) -> dict[str, Method]:
        """The methods to propose, by precision: the requested one, or all that are worth trying."""
        if precision is not None:
            return {precision: self.methods[precision]}
        chosen = {}
        for name in PRECISIONS:
            method = self.methods[name]
            if method.auto and (method.nodes or name == "fp32"):
                chosen[name] = method
        return chosen


_FLOAT: Final = Method((), "single precision, as in the model")
_SYMMETRIC: Final[Mapping[str, Value]] = {
    "quant_format": "QDQ",
    "weight_type": "QInt8",
    "activation_type": "QInt8",
    "activation_symmetric": True,
    "weight_symmetric": True,
}
_QDQ: Final[Mapping[str, Value]] = {"quant_format": "QDQ", "weight_type": "QInt8", "activation_type": "QUInt8"}
_QDQ_INT8: Final[Mapping[str, Value]] = {"quant_format": "QDQ", "weight_type": "QInt8"}
_MIXED: Final = Method(("mixed",), "half precision where it stays accurate", auto=False)
_BLOCKS: Final = Method(("weights",), "block-wise quantization of MatMul weights")
_NVIDIA: Final[Mapping[str, Method]] = {
    "fp32": _FLOAT,
    "fp16": Method(("half",), "half precision, which uses the tensor cores"),
    "mixed": _MIXED,
    "int8": Method(("static",), "{nodes} quantization (QDQ) with symmetric ranges"),
}

PROVIDERS: Final[Mapping[str, ProviderProfile]] = {
    CPU: ProviderProfile(
        {
            "fp32": _FLOAT,
            "fp16": Method(("half",), "half precision: half the size, but slower, as a CPU casts to float", auto=False),
            "mixed": Method(("mixed",), "half precision where it stays accurate; slower on a CPU", auto=False),
            "int8": Method(("dynamic", "static", "selective"), "{nodes} quantization of MatMul, LSTM and Conv"),
            "int4": _BLOCKS,
        },
        fixed={"static": _QDQ_INT8, "selective": _QDQ_INT8},
        fuses=True,
    ),
    CUDA: ProviderProfile({**_NVIDIA, "int4": _BLOCKS}, fixed={"static": _SYMMETRIC}, fuses=True),
    TENSORRT: ProviderProfile(
        {**_NVIDIA, "int4": Method((), "the provider has no kernels for block-wise quantized weights")},
        fixed={"static": _SYMMETRIC},
    ),
    DIRECTML: ProviderProfile(
        {
            "fp32": _FLOAT,
            "fp16": Method(("half",), "half precision, which GPUs compute fastest"),
            "mixed": _MIXED,
            "int8": Method(("static",), "{nodes} quantization (QDQ)"),
            "int4": _BLOCKS,
        },
        fixed={"static": _QDQ},
    ),
    OPENVINO: ProviderProfile(
        {
            "fp32": _FLOAT,
            "fp16": Method(("half",), "half precision: half the size; the provider picks the arithmetic", auto=False),
            "mixed": Method(("arithmetic",), "bfloat16 arithmetic where the provider has kernels for it"),
            "int8": Method(("static",), "{nodes} quantization (QDQ), which the provider turns into integer kernels"),
            "int4": Method((), "the provider compresses weights itself when it loads a model"),
        },
        fixed={"static": _QDQ},
    ),
    QNN: ProviderProfile(
        {
            "fp32": _FLOAT,
            "fp16": Method(("half",), "half precision, which the processor computes in"),
            "mixed": Method((), "the processor computes in one precision"),
            "int8": Method(("static", "wide"), "8-bit weights with 8-bit or 16-bit activations"),
            "int4": Method(("narrow",), "4-bit weights with 8-bit or 16-bit activations"),
        },
        fixed={"static": {"quant_format": "QDQ", "weight_type": "QUInt8", "activation_type": "QUInt8"}},
        static_shapes=True,
    ),
}
OTHER: Final = ProviderProfile(
    {
        **dict.fromkeys(PRECISIONS, Method((), "support by this provider is unknown")),
        "fp32": _FLOAT,
        "fp16": Method(("half",), "half precision, if the provider has it"),
    }
)
"""Any other provider."""


def provider_profile(name: str) -> ProviderProfile:
    """The profile of an execution provider."""
    return PROVIDERS.get(name, OTHER)
