"""What the rules share: constants, types, shapes, opsets as a guard may rely on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
from onnxscript.rewriter.pattern import MatchResult, RewriteRuleClassBase

FLOATS = frozenset({ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16, ir.DataType.BFLOAT16})


class Rule(RewriteRuleClassBase):  # type: ignore[misc]  # onnxscript is not typed
    """A rule whose `guard` says why it must not fire, or nothing; `guard` may leave what it found on `self`."""

    def __init__(self, assume: frozenset[str], chunks: int) -> None:
        super().__init__(type(self).__name__)
        self.assume = assume
        self.chunks = chunks

    guard: Callable[..., str]
    """`guard(context, **values of the pattern)`: why the rewrite would not be true here; empty where it is."""

    def check(self, context: Any, **values: Any) -> Any:
        result = MatchResult()
        reason = self.guard(context, **{k: v for k, v in values.items() if not k.startswith("_")})
        return result.fail(reason) if reason else result


def constant(value: ir.Value | None) -> np.ndarray | None:
    """The fixed value, or None; a weight that is an input too can be overridden and is not fixed."""
    if value is None or value.is_graph_input():
        return None
    node = value.producer()
    if node is not None and node.op_type == "Constant" and value.const_value is None:
        attribute = node.attributes.get("value")
        return None if attribute is None else np.asarray(attribute.as_tensor().numpy())
    return None if value.const_value is None else np.asarray(value.const_value.numpy())


def scalar(value: ir.Value | None) -> float | None:
    """The one number of a fixed value of rank 0, or of one element and rank 1; None otherwise."""
    array = constant(value)
    if array is None or array.size != 1 or array.ndim > 1 or not np.issubdtype(array.dtype, np.number):
        return None
    return float(array.reshape(()))


def is_float(value: ir.Value) -> bool:
    """Whether the type is known and a float."""
    return value.dtype in FLOATS


def like(value: ir.Value, array: Any) -> ir.Tensor:
    """`array` as a tensor of the type of `value` (whose type must be known)."""
    assert value.dtype is not None
    return ir.Tensor(np.asarray(array).astype(value.dtype.numpy()))


def int64(array: Any) -> ir.Tensor:
    """`array` as an int64 tensor."""
    return ir.Tensor(np.asarray(array, dtype=np.int64))


def rank(value: ir.Value) -> int | None:
    """The number of dimensions, where it is known."""
    return None if value.shape is None else len(value.shape)


def static_dim(value: ir.Value, axis: int) -> int | None:
    """The size of a dimension, where it is known and fixed."""
    if value.shape is None or not -len(value.shape) <= axis < len(value.shape):
        return None
    size = value.shape[axis]
    return size if isinstance(size, int) else None


def attribute(node: ir.Node, name: str, default: Any) -> Any:
    """The value of an attribute, or `default`."""
    found = node.attributes.get(name)
    return default if found is None else found.value


def opset(context: Any) -> int:
    """The version of the ai.onnx operators where the match is."""
    return int(context.graph_or_function.opset_imports.get("", 0))
