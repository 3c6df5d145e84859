"""The table accelerator x execution provider x precision -> passes that a proposal takes, and why it takes no others.

What is known of the CPU was measured; the other providers follow what their documentation says they run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from autoopt.spec.proposal_options import PRECISIONS

CPU: Final = "CPUExecutionProvider"
CUDA: Final = "CUDAExecutionProvider"
TENSORRT: Final = "TensorrtExecutionProvider"
DIRECTML: Final = "DmlExecutionProvider"
OPENVINO: Final = "OpenVINOExecutionProvider"
QNN: Final = "QNNExecutionProvider"


@dataclass(frozen=True)
class Flow:
    """What one precision means on one provider: alternatives of the precision stage, by node id of the template.

    `why` is told to the reader; `auto`: whether it is tried where no precision is asked for.
    """

    nodes: tuple[str, ...]
    why: str
    auto: bool = True


@dataclass(frozen=True)
class Provider:
    """What an execution provider takes."""

    flows: Mapping[str, Flow]
    """By precision."""
    fixed: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Node id -> parameters that are not a choice there."""
    fuses: bool = False
    """Whether it runs onnxruntime's own fused operators, so that fusing ahead has a meaning."""
    static_shapes: bool = False
    """Whether it takes fixed shapes only."""


_FLOAT: Final = Flow((), "single precision, as the model is")
_SYMMETRIC: Final = {
    "quant_format": "QDQ",
    "weight_type": "QInt8",
    "activation_type": "QInt8",
    "activation_symmetric": True,
    "weight_symmetric": True,
}
_QDQ: Final = {"quant_format": "QDQ", "weight_type": "QInt8", "activation_type": "QUInt8"}

PROVIDERS: Final[Mapping[str, Provider]] = {
    CPU: Provider(
        {
            "fp32": _FLOAT,
            "fp16": Flow(("half",), "half the size; the CPU casts to float and back, so it is slower", auto=False),
            "mixed": Flow(("mixed",), "half precision where it is accurate; slower on a CPU", auto=False),
            "int8": Flow(("dynamic", "static"), "integers in MatMul, LSTM and convolutions"),
            "int4": Flow(("weights",), "weights of MatMul in blocks of few bits"),
        },
        fixed={"static": {"quant_format": "QDQ", "weight_type": "QInt8"}},
        fuses=True,
    ),
    CUDA: Provider(
        {
            "fp32": _FLOAT,
            "fp16": Flow(("half",), "half precision uses the tensor cores"),
            "mixed": Flow(("mixed",), "half precision where it is accurate", auto=False),
            "int8": Flow(("static",), "quantise and dequantise pairs with symmetric ranges"),
            "int4": Flow(("weights",), "weights of MatMul in blocks of few bits"),
        },
        fixed={"static": _SYMMETRIC},
        fuses=True,
    ),
    TENSORRT: Provider(
        {
            "fp32": _FLOAT,
            "fp16": Flow(("half",), "half precision uses the tensor cores"),
            "mixed": Flow(("mixed",), "half precision where it is accurate", auto=False),
            "int8": Flow(("static",), "quantise and dequantise pairs with symmetric ranges"),
            "int4": Flow((), "it has no kernels for onnxruntime's weights of few bits"),
        },
        fixed={"static": _SYMMETRIC},
    ),
    DIRECTML: Provider(
        {
            "fp32": _FLOAT,
            "fp16": Flow(("half",), "half precision is what graphics processors are fast at"),
            "mixed": Flow(("mixed",), "half precision where it is accurate", auto=False),
            "int8": Flow(("static",), "quantise and dequantise pairs"),
            "int4": Flow(("weights",), "weights of MatMul in blocks of few bits"),
        },
        fixed={"static": _QDQ},
    ),
    OPENVINO: Provider(
        {
            "fp32": _FLOAT,
            "fp16": Flow(("half",), "half the size; the provider picks its own arithmetic", auto=False),
            "mixed": Flow(("mixed",), "half precision where it is accurate", auto=False),
            "int8": Flow(("static",), "quantise and dequantise pairs, which it turns into integer kernels"),
            "int4": Flow((), "it compresses weights itself when it loads a model"),
        },
        fixed={"static": _QDQ},
    ),
    QNN: Provider(
        {
            "fp32": _FLOAT,
            "fp16": Flow(("half",), "its processor computes in half precision"),
            "mixed": Flow((), "its processor computes in one precision"),
            "int8": Flow(("static", "wide"), "8-bit weights with activations of 8 or 16 bits"),
            "int4": Flow(("narrow",), "4-bit weights with activations of 8 or 16 bits"),
        },
        fixed={"static": {"quant_format": "QDQ", "weight_type": "QUInt8", "activation_type": "QUInt8"}},
        static_shapes=True,
    ),
}
OTHER: Final = Provider(
    {
        "fp32": _FLOAT,
        "fp16": Flow(("half",), "half precision, where the provider has it"),
        "mixed": Flow((), "not known of this provider"),
        "int8": Flow((), "not known of this provider"),
        "int4": Flow((), "not known of this provider"),
    }
)
"""A provider of which no more is known."""


def provider(name: str) -> Provider:
    """What is known of an execution provider."""
    return PROVIDERS.get(name, OTHER)


def chosen(name: str, precision: str | None) -> dict[str, Flow]:
    """The flows to propose, by precision: the one asked for, or all that are worth trying."""
    flows = provider(name).flows
    if precision is not None:
        return {precision: flows[precision]}
    return {p: flows[p] for p in PRECISIONS if flows[p].auto and (flows[p].nodes or p == "fp32")}
