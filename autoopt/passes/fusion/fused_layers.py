"""Layers that onnxruntime fused when it saved the model, split into the operators that other passes know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal

from autoopt.model.lazy_imports import ir
from autoopt.model.plain_forms import FUSED_LAYERS
from autoopt.passes.base import Pass, Retry
from autoopt.passes.base.conflicts import RUNTIME_BOUND
from autoopt.passes.base.conversion import to_ir
from autoopt.passes.fusion.blocked_layout import is_blocked, may_have_blocks_of, to_plain_layout
from autoopt.passes.onnx_tools.libraries import apply_rules

if TYPE_CHECKING:
    from onnx import ModelProto

# As its MlasNchwcGetBlockSize gives them: 8 on x86 CPUs without AVX-512, else 16.
BLOCK_SIZES: Final = frozenset((8, 16))
"""Channels of a block in onnxruntime's layout for CPUs."""


class SplitFusedLayers(Pass):
    """Splits FusedConv, FusedGemm and FusedMatMul, as onnxruntime saves optimized models, into operators of ONNX.

    Layers in onnxruntime's layout for CPUs, which it saves by default, get the layout of ONNX first. Quantizers and
    simplifiers know only these operators. onnxruntime fuses them again when it loads the model.
    """

    conflicts = RUNTIME_BOUND
    needs_ops = tuple(FUSED_LAYERS)
    libraries = ("onnx", "onnx-ir", "onnxscript")
    version = 2

    block_size: Annotated[
        Literal[0, 8, 16], "channels of a block in onnxruntime's layout for CPUs; 0: as this CPU has them"
    ] = 0

    def run(self, model: ModelProto) -> ir.Model | None:
        from autoopt.passes.rewrites.fused_layers import split_rules

        self._was_blocked = is_blocked(model)
        if self._was_blocked:
            to_plain_layout(model, self.block_size or self._likely_block(model))
        return apply_rules(to_ir(model), split_rules())

    def after_rejection(self, problem: str) -> Retry | None:
        if self.block_size or not self._was_blocked:
            return None
        other = BLOCK_SIZES.difference((self._block,))
        return Retry(f"blocks of {self._block} channels: {problem}", {"block_size": min(other)})

    def _likely_block(self, model: ModelProto) -> int:
        """The channels of a block on this CPU, or the other number if the weights do not fit them."""
        isa = self.context.accelerator.isa
        is_narrow = any(feature.startswith("sse") for feature in isa) and "avx512f" not in isa
        self._block = max(BLOCK_SIZES)
        if is_narrow or not may_have_blocks_of(model, self._block):
            self._block = min(BLOCK_SIZES)
        return self._block
