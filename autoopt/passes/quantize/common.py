"""What the quantisation passes share: types, offers by instruction set, reading calibration data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from autoopt.passes.base import PassContext, Refused
from autoopt.registry import ParameterInfo
from autoopt.space import Categorical, Conditional
from autoopt.target import Accelerator

if TYPE_CHECKING:
    import numpy as np

WIDE_DOT_PRODUCT = frozenset({"avx512_vnni", "avx_vnni", "avx_vnni_int8", "amx_int8", "asimddp", "i8mm", "svei8mm"})
"""CPU features that add up int8 products in 32 bits, so that 7-bit weights (`reduce_range`) bring nothing."""

INTEGER_OPS = (
    "DynamicQuantizeLinear",
    "MatMulInteger",
    "ConvInteger",
    "QAttention",
    "DynamicQuantizeLSTM",
    "QEmbedLayerNormalization",
    "QuantizeLinear",
    "DequantizeLinear",
    "QLinearConv",
    "QLinearMatMul",
    "QGemm",
)
"""Operators of which a quantised graph has some and a float graph none."""

INFER_MARK = "onnx.infer"
"""Metadata that ORT's quantiser leaves behind."""


def offer_by_isa(parameter: ParameterInfo, accelerator: Accelerator) -> ParameterInfo | None:
    """Quantisation parameters as a CPU can use them.

    `reduce_range` is searched only where the instruction set is known and overflows without it. Signed activations
    are not searched on x86 (its dot products take unsigned ones), unsigned ones not on ARM.
    """
    if parameter.name == "reduce_range" and (not accelerator.isa or accelerator.isa & WIDE_DOT_PRODUCT):
        wide = ", ".join(sorted(accelerator.isa & WIDE_DOT_PRODUCT)[:2])
        reason = f"the CPU adds up int8 products in 32 bits ({wide})" if wide else "the CPU's features are not known"
        return replace(parameter, search=None, withdrawn=((True, reason),))
    if parameter.name == "activation_type" and isinstance(parameter.search, Conditional):
        unused = _unused_sign(accelerator.isa)
        if unused:
            other = "unsigned" if unused == "QInt8" else "signed"
            reason = f"the CPU's integer products take {other} activations"
            return replace(parameter, search=_without(parameter.search, unused), withdrawn=((unused, reason),))
    return parameter


def _unused_sign(isa: frozenset[str]) -> str:
    if any(feature.startswith(("avx", "sse", "amx")) for feature in isa):
        return "QInt8"
    return "QUInt8" if isa & {"asimd", "asimddp", "i8mm", "sve"} else ""


def _without(search: Conditional, unused: str) -> Conditional:
    """The same choice without the value `unused`, wherever another one remains."""

    def less(branch: Any) -> Any:
        kept = [v for v in branch.values() if v != unused] if isinstance(branch, Categorical) else []
        return Categorical(*kept) if kept else branch

    return Conditional(search.parents, {values: less(branch) for values, branch in search.support}, search.default)


def quant_type(name: str) -> Any:
    """onnxruntime's QuantType of that name."""
    from onnxruntime.quantization import QuantType

    return QuantType[name]


class Feeds:
    """Calibration feeds as onnxruntime reads them (a CalibrationDataReader by shape), from the start each time."""

    def __init__(self, context: PassContext, limit: int = 0) -> None:
        """`limit`: at most that many feeds; 0 for all.

        Raises:
            Refused: the run has no calibration data, or none in it.
        """
        if context.calibration is None:
            raise Refused("needs calibration data, and the run has none (data: calibration)")
        self._open = context.calibration
        self._limit = limit
        self._feeds = self._start()
        if self.get_next() is None:
            raise Refused("the calibration data holds no items")
        self.rewind()

    def _start(self) -> Iterator[dict[str, np.ndarray]]:
        for number, feed in enumerate(self._open()):
            if self._limit and number >= self._limit:
                return
            yield feed

    def get_next(self) -> dict[str, np.ndarray] | None:
        """The next feed, or None at the end."""
        return next(self._feeds, None)

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        return self._feeds

    def __next__(self) -> dict[str, np.ndarray]:
        return next(self._feeds)

    def rewind(self) -> None:
        """Start again."""
        self._feeds = self._start()
