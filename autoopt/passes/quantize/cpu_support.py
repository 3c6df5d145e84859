"""Quantization parameters that a CPU can use, by its instruction set."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from autoopt.registry import ParameterInfo
from autoopt.space import Categorical, Conditional
from autoopt.target import Accelerator

if TYPE_CHECKING:
    pass


WIDE_DOT_PRODUCT = frozenset({"avx512_vnni", "avx_vnni", "avx_vnni_int8", "amx_int8", "asimddp", "i8mm", "svei8mm"})
"""CPU features that add up int8 products in 32 bits, so that 7-bit weights (`reduce_range`) bring nothing."""


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
