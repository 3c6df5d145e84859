"""Similarity of two models, from their inspections."""

from __future__ import annotations

import math
from typing import Final

from autoopt.model.inspection import Inspection

KINDS: Final = (("Conv", "ConvTranspose"), ("MatMul", "Gemm"), ("LSTM", "GRU", "RNN"))
"""Layers by what integers do to them."""
NORMALIZATIONS: Final = ("LayerNormalization", "Softmax", "Erf", "ReduceMean")


def same_graph(a: Inspection, b: Inspection) -> bool:
    """True if two models differ only in the values of their weights, as far as their inspections show."""
    mine = (a.inputs, a.outputs, a.opsets, a.op_counts, a.parameters, a.weight_dtypes)
    return mine == (b.inputs, b.outputs, b.opsets, b.op_counts, b.parameters, b.weight_dtypes)


def features(model: Inspection) -> tuple[float, ...]:
    """Shares of the work, sizes and structure of a model, on scales on which 1 is a great difference."""
    work = dict(model.layer_work or model.layer_parameters)
    total = sum(work.values()) or 1
    shares = [2 * sum(work.get(op, 0) for op in ops) / total for ops in KINDS]
    layers = sum(count for op, count in model.op_counts.items() if op in work) or 1
    normalizations = sum(model.op_counts.get(op, 0) for op in NORMALIZATIONS)
    sizes = [math.log10(total) / 2, math.log10(model.parameters + 1) / 3]
    operators = sum(model.op_counts.values()) or 1
    structure = [math.log10(operators / layers), math.log10(1 + normalizations) / 2]
    return (*shares, *sizes, *structure)
