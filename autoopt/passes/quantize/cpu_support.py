"""Quantization parameters that a CPU can use, by its instruction set."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from autoopt.registry import ParameterInfo
from autoopt.space import Categorical, Conditional
from autoopt.target import Accelerator

WIDE_DOT_PRODUCT: Final = frozenset(
    {"avx512_vnni", "avx_vnni", "avx_vnni_int8", "amx_int8", "asimddp", "i8mm", "svei8mm"}
)
"""CPU features that accumulate int8 products in 32 bits. With them, 7-bit weights (`reduce_range`) gain nothing."""
X86_PREFIXES: Final = ("avx", "sse", "amx")
ARM_FEATURES: Final = frozenset({"asimd", "asimddp", "i8mm", "sve"})


def offer_for_cpu(parameter: ParameterInfo, accelerator: Accelerator) -> ParameterInfo:
    """Restrict quantization parameters to values that a CPU can use.

    `reduce_range` is searched only if the instruction set is known and overflows without it. Signed activations are
    not searched on x86, whose dot products take unsigned ones, and unsigned ones not on ARM.
    """
    if parameter.name == "reduce_range":
        return _offer_reduce_range(parameter, accelerator)
    if parameter.name == "activation_type" and isinstance(parameter.search, Conditional):
        if any(feature.startswith(X86_PREFIXES) for feature in accelerator.isa):
            return _withdraw(
                parameter, parameter.search, "QInt8", "the CPU's integer products take unsigned activations"
            )
        if accelerator.isa & ARM_FEATURES:
            return _withdraw(
                parameter, parameter.search, "QUInt8", "the CPU's integer products take signed activations"
            )
    return parameter


def _offer_reduce_range(parameter: ParameterInfo, accelerator: Accelerator) -> ParameterInfo:
    wide = sorted(accelerator.isa & WIDE_DOT_PRODUCT)
    if wide:
        reason = f"the CPU accumulates int8 products in 32 bits ({', '.join(wide[:2])})"
    elif not accelerator.isa:
        reason = "the CPU's features are unknown"
    else:
        return parameter
    return replace(parameter, search=None, withdrawn=((True, reason),))


def _withdraw(parameter: ParameterInfo, search: Conditional, value: str, reason: str) -> ParameterInfo:
    """Remove `value` from each case of the search that has other values too."""
    cases = {}
    for parent_values, branch in search.support:
        cases[parent_values] = branch
        if isinstance(branch, Categorical):
            remaining = [candidate for candidate in branch.values() if candidate != value]
            if remaining:
                cases[parent_values] = Categorical(*remaining)
    return replace(parameter, search=Conditional(search.parents, cases, search.default), withdrawn=((value, reason),))
