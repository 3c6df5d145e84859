"""Shapes for onnxruntime's fusion, inferred once for as long as they hold.

Its fusions ask for the shapes of all values up to eight times for each kind of transformer, and each time onnxruntime
infers them with symbols from the start. Fusion mostly removes values, and those that stay keep their shapes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from autoopt.model.lazy_imports import onnx

if TYPE_CHECKING:
    from onnx import ModelProto
    from onnxruntime.transformers.onnx_model import OnnxModel
    from onnxruntime.transformers.shape_infer_helper import SymbolicShapeInferenceHelper


@dataclass(frozen=True)
class _Inferred:
    """The result of one inference."""

    values: frozenset[str]
    nodes: bytes
    """Digest of the nodes that had these shapes."""
    shapes: SymbolicShapeInferenceHelper | None
    """None if the shape of a value is unknown, as the library has it."""


class KnownShapes:
    """The shapes of one model's values, for all attempts to fuse it."""

    def __init__(self) -> None:
        self._results: list[_Inferred] = []

    @contextmanager
    def used(self) -> Iterator[None]:
        """Let onnxruntime's fusion take shapes from here within the context."""
        from onnxruntime.transformers import optimizer

        owner = sys.modules[optimizer.OnnxModel.__module__].OnnxModel
        original = owner.infer_runtime_shape
        owner.infer_runtime_shape = lambda asking, *_, **__: self._shapes_for(asking)
        try:
            yield
        finally:
            owner.infer_runtime_shape = original

    def _shapes_for(self, asking: OnnxModel) -> SymbolicShapeInferenceHelper | None:
        if not asking.enable_shape_infer:
            return None
        graph = asking.model.graph
        values = frozenset(name for node in graph.node for name in (*node.input, *node.output) if name)
        nodes = sha256(b"".join(node.SerializeToString(deterministic=True) for node in graph.node)).digest()
        for number, result in enumerate(self._results):
            # Names that an attempt made up may mean something else in the next one.
            is_reduced_source = number == 0 and values <= result.values
            if is_reduced_source or nodes == result.nodes:
                return result.shapes
        self._results.append(_Inferred(values, nodes, _infer(asking.model)))
        return self._results[-1].shapes


def _infer(model: ModelProto) -> SymbolicShapeInferenceHelper | None:
    """Infer all shapes; None if one stays unknown."""
    from onnxruntime.transformers.shape_infer_helper import SymbolicShapeInferenceHelper

    shapes = SymbolicShapeInferenceHelper(model)
    try:
        is_complete = shapes.infer({})
    except Exception:  # it fails in many ways; the fusions then do without shapes
        return None
    if not is_complete:
        return None
    # The rest of its state holds copies of the weights.
    shapes.known_vi_ = {name: deepcopy(value) for name, value in shapes.known_vi_.items()}
    shapes.out_mp_, shapes.tmp_mp_, shapes.model_ = onnx.ModelProto(), onnx.ModelProto(), None
    shapes.initializers_ = {}
    return shapes
