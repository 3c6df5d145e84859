"""The base class of the rules, and the facts about values that guards rely on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias

import numpy as np
import onnx_ir as ir
from onnxscript.rewriter.pattern import MatchResult, RewriteRuleClassBase

from autoopt.passes.onnx_tools.sizes import fixed_tensor

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
    from onnxscript.rewriter import MatchContext
    from onnxscript.rewriter._pattern_ir import ValuePattern
    from onnxscript.rewriter.pattern import OpsetPatternBuilder, RewriterContext

    Builder: TypeAlias = OpsetPatternBuilder
    """Makes the operators of a pattern: `op.Div(x, c)`."""
    Tape: TypeAlias = RewriterContext
    """Makes the operators of the replacement, in the same notation."""
    Pattern: TypeAlias = ValuePattern
    Match: TypeAlias = MatchContext

FLOAT_TYPES: Final = frozenset({ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16, ir.DataType.BFLOAT16})


class Rule(RewriteRuleClassBase):  # type: ignore[misc]  # onnxscript is not typed
    """A rewrite rule: `pattern` is what it matches, `guard` gives reasons not to rewrite, `rewrite` is the replacement.

    One rule object rewrites one match after the other: `guard` may leave on `self` what `rewrite` needs.
    """

    commutes: ClassVar[bool] = False
    """The rule also matches with the inputs of commutative operators exchanged."""

    def __init__(self, assume: frozenset[str] = frozenset(), chunks: int = 1) -> None:
        super().__init__(type(self).__name__)
        self.assume = assume
        self.chunks = chunks

    guard: Callable[..., str]
    """`guard(context, **values)` returns the reason why the rewrite would be incorrect for this match; empty if it is
    correct. `context.root` is the last node of the match, `values` are the values of the pattern by name."""

    def check(self, context: Match, **values: object) -> MatchResult:
        result = MatchResult()
        if any(each.is_ref() for node in context.nodes for each in node.attributes.values()):
            return result.fail("an attribute is a parameter of the function")
        reason = self.guard(context, **{name: value for name, value in values.items() if not name.startswith("_")})
        if reason:
            return result.fail(reason)
        return result


def constant(value: ir.Value | None) -> np.ndarray | None:
    """The fixed value, or None. A weight that is also an input is not fixed, because callers can override it."""
    tensor = fixed_tensor(value)
    return None if tensor is None else np.asarray(tensor.numpy())


def scalar(value: ir.Value | None) -> float | None:
    """The number in a fixed value of rank 0, or of rank 1 with one element; otherwise None."""
    array = constant(value)
    if array is None or array.size != 1 or array.ndim > 1 or not np.issubdtype(array.dtype, np.number):
        return None
    return float(array.reshape(()))


def is_float(value: ir.Value) -> bool:
    """Tell if the type is known and a float."""
    return value.dtype in FLOAT_TYPES


def tensor_like(value: ir.Value, array: ArrayLike) -> ir.Tensor:
    """`array` as a tensor of the type of `value`, which must be known."""
    assert value.dtype is not None
    return ir.Tensor(np.asarray(array).astype(value.dtype.numpy()))


def int64_tensor(array: ArrayLike) -> ir.Tensor:
    """`array` as an int64 tensor."""
    return ir.Tensor(np.asarray(array, dtype=np.int64))


def rank(value: ir.Value) -> int | None:
    """The number of dimensions, if known."""
    if value.shape is None:
        return None
    return len(value.shape)


def static_dim(value: ir.Value, axis: int) -> int | None:
    """The size of a dimension, if known and fixed."""
    if value.shape is None or not -len(value.shape) <= axis < len(value.shape):
        return None
    size = value.shape[axis]
    if isinstance(size, int):
        return size
    return None


def opset(context: Match) -> int:
    """The version of the ai.onnx operators at the match."""
    return int(context.graph_or_function.opset_imports.get("", 0))
