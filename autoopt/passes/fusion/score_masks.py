"""Masks that choose between scores and a large negative number, or that are added one by one, as one mask to add."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from autoopt.model.lazy_imports import helper, np, numpy_helper, onnx
from autoopt.passes.fusion.attention_matcher import Matcher
from autoopt.passes.fusion.finite_masks import LIMIT, LOWEST
from autoopt.passes.onnx_tools.graphs import constant_tensors, replace_items

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

ABSORBING: Final = -1e30
"""Adding a score to this or less gives the number itself in float32, as choosing it does."""
CONSTANTS: Final = {"score_mask_nothing": 0.0, "score_mask_limit": LIMIT}
NOTHING, HIDDEN = CONSTANTS


@dataclass(frozen=True)
class _Masked:
    """Scores, what is added to them, and the nodes that compute it."""

    scores: str
    mask: str = ""
    nodes: tuple[NodeProto, ...] = ()


def join_score_masks(model: ModelProto) -> ModelProto:
    """Let scores of attention get all their masks by one Add; the model itself where they do."""
    joined = dict(_Joiner(model).joined())
    if not joined:
        return model
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    nodes: list[NodeProto] = []
    for node in changed.graph.node:
        masked = joined.get(node.output[0])
        if masked is not None:
            name = f"{node.output[0]}_masked"
            nodes += [*masked.nodes, helper.make_node("Add", [masked.scores, masked.mask], [name], name)]
            node.input[0] = name
        nodes.append(node)
    replace_items(changed.graph.node, nodes)
    for name, number in CONSTANTS.items():
        changed.graph.initializer.append(numpy_helper.from_array(np.array(number, np.float32), name))
    return changed


class _Joiner:
    def __init__(self, model: ModelProto) -> None:
        self._nodes = model.graph.node
        self._matcher = Matcher(model)
        constants = constant_tensors(model.graph)
        self._floats = {name for name, tensor in constants.items() if tensor.data_type == onnx.TensorProto.FLOAT}

    def joined(self) -> Iterator[tuple[str, _Masked]]:
        """The scores behind each Softmax, by its output, whose masks are not one sum already."""
        for softmax in self._nodes:
            if softmax.op_type == "Softmax":
                masked = self._masked(softmax.input[0])
                if masked is not None and masked.nodes:
                    yield softmax.output[0], masked

    def _masked(self, value: str) -> _Masked | None:
        """The product of queries and keys, scaled, behind a value, and what masks it on the way."""
        node = self._matcher.producers.get(self._matcher.unscaled(value)[0])
        if node is not None and node.op_type == "MatMul":
            return _Masked(value)
        node = self._matcher.producers.get(value)
        if node is not None and node.op_type == "Add":
            return self._added(node)
        if node is not None and node.op_type == "Where":
            return self._chosen(node)
        return None

    def _added(self, node: NodeProto) -> _Masked | None:
        for value, mask in (node.input, reversed(node.input)):
            inner = self._masked(value)
            if inner is None:
                continue
            if not inner.mask:
                return _Masked(inner.scores, mask)
            total = f"{node.output[0]}_mask"
            added = helper.make_node("Add", [inner.mask, mask], [total], total)
            return _Masked(inner.scores, total, (*inner.nodes, added))
        return None

    def _chosen(self, node: NodeProto) -> _Masked | None:
        condition, *choices = node.input
        for value, low in (choices, reversed(choices)):
            inner = self._masked(value) if self._hides(low) else None
            if inner is None:
                continue
            renamed = {value: inner.mask or NOTHING, low: self._bounded(low)}
            total = f"{node.output[0]}_mask"
            chosen = helper.make_node("Where", [condition, *(renamed[name] for name in choices)], [total], total)
            return _Masked(inner.scores, total, (*inner.nodes, chosen))
        return None

    def _hides(self, value: str) -> bool:
        number = self._matcher.scalars.get(value, 0)
        return value in self._floats and number <= ABSORBING

    def _bounded(self, value: str) -> str:
        """The number that hides scores; onnxruntime's operator returns zeros for rows of float32's lowest."""
        return HIDDEN if self._matcher.scalars[value] == LOWEST else value
