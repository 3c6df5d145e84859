"""Quantization parameters that a CPU can use, by its instruction set."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from autoopt.registry import ParameterInfo
from autoopt.space import IGNORED, Categorical, Conditional, ConditionalDefault
from autoopt.target import Accelerator

WIDE_DOT_PRODUCT: Final = frozenset(
    {"avx512_vnni", "avx_vnni", "avx_vnni_int8", "amx_int8", "asimddp", "i8mm", "svei8mm"}
)
"""CPU features that accumulate int8 products in 32 bits. With them, 7-bit weights (`reduce_range`) gain nothing."""
X86_PREFIXES: Final = ("avx", "sse", "amx")
ARM_FEATURES: Final = frozenset({"asimd", "asimddp", "i8mm", "sve"})
SIGNED_ACTIVATIONS: Final = ConditionalDefault("weight_type", {"QUInt8": "QUInt8"}, default="QInt8")
"""Default type of activations on ARM and GPUs; no runtime supports signed ones with unsigned weights."""


def offer_for_cpu(parameter: ParameterInfo, accelerator: Accelerator) -> ParameterInfo:
    """Restrict quantization parameters to values that a CPU can use.

    `reduce_range` is searched, and the default, only on x86 CPUs that overflow without it. Signed activations are
    not searched on x86, whose dot products take unsigned ones, and unsigned ones not on ARM. Activations are signed by
    default on ARM and for providers other than the CPU's, which prefer ranges that are symmetric around 0.

    Products with weights in blocks (MatMulNBits) round activations to int8 by default on CPUs; where those have integer
    dot products, float ones are searched with 4 bits alone. Other providers ignore that level or do not support it.
    """
    if parameter.name == "accuracy_level":
        return _offer_accuracy_level(parameter, accelerator)
    if parameter.name == "reduce_range":
        return _offer_reduce_range(parameter, accelerator)
    if parameter.name == "activation_type" and isinstance(parameter.search, Conditional):
        return _offer_activation_type(parameter, parameter.search, accelerator)
    return parameter


def _offer_accuracy_level(parameter: ParameterInfo, accelerator: Accelerator) -> ParameterInfo:
    if accelerator.execution_provider != "CPUExecutionProvider":
        reason = "only the CPU's products round activations to int8"
        return replace(parameter, default=0, search=None, withdrawn=((4, reason),))
    if accelerator.isa & WIDE_DOT_PRODUCT:
        # With onnxruntime 1.31.1 and AVX-512 VNNI, level 0 with 8 bits takes 2.2x to 12x of the CPU time of the float
        # product. With 4 bits it takes 0.8x to 1.3x, level 4 0.25x to 0.7x for matrices of 512 x 1024, and more than
        # level 0 for small ones.
        return replace(parameter, search=Conditional("bits", {4: Categorical(4, 0)}, default=IGNORED))
    return parameter


def _offer_activation_type(parameter: ParameterInfo, search: Conditional, accelerator: Accelerator) -> ParameterInfo:
    signed = replace(parameter, default=SIGNED_ACTIVATIONS)
    if accelerator.execution_provider != "CPUExecutionProvider":
        return signed
    if any(feature.startswith(X86_PREFIXES) for feature in accelerator.isa):
        return _withdraw(parameter, search, "QInt8", "the CPU's integer products take unsigned activations")
    if accelerator.isa & ARM_FEATURES:
        return _withdraw(signed, search, "QUInt8", "the CPU's integer products take signed activations")
    return parameter


def _offer_reduce_range(parameter: ParameterInfo, accelerator: Accelerator) -> ParameterInfo:
    wide = sorted(accelerator.isa & WIDE_DOT_PRODUCT)
    if accelerator.execution_provider != "CPUExecutionProvider":
        reason = "only products of x86 CPUs overflow"
    elif wide:
        reason = f"the CPU accumulates int8 products in 32 bits ({', '.join(wide[:2])})"
    elif any(feature.startswith(X86_PREFIXES) for feature in accelerator.isa):
        # Sums of two products saturate at 16 bits there. On a ResNet, 8-bit weights gave outputs with a relative error
        # of 0.33, 7-bit ones 0.11 at the same speed, where exact sums of the former give 0.07.
        return replace(parameter, default=True)
    else:
        reason = "only x86 CPUs are known to overflow"
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
