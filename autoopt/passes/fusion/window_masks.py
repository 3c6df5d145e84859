"""Masks of shifted windows, as Swin has them, in the form of other attention masks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autoopt.model.lazy_imports import helper, onnx
from autoopt.passes.onnx_tools.graphs import replace_items
from autoopt.passes.onnx_tools.producing_nodes import ProducingNodes
from autoopt.passes.onnx_tools.sizes import ONE, Size, SizeReader

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, ValueInfoProto


@dataclass(frozen=True)
class WindowMask:
    """A mask of windows on the way from scores to a softmax.

    Scores are (items * windows, heads, queries, keys). Exports add a bias for positions, reshape to (items, windows,
    heads, queries, keys), add the mask of each window, the same for all items, and reshape back.
    """

    softmax: NodeProto
    scores: str
    bias: str
    """(1, heads, queries, keys)."""
    masks: tuple[str, ...]
    """Each (1, windows, heads or 1, queries, keys)."""
    split_target: str
    merge_target: str
    sizes: tuple[int, int, int]
    """Heads, queries and keys."""

    @property
    def whole(self) -> str:
        """The name of the sum of bias and mask, (items * windows, heads, queries, keys)."""
        return f"{self.softmax.output[0]}_mask"

    def nodes(self) -> list[NodeProto]:
        """Nodes that add one mask to the scores as they are; the last makes what the softmax should read."""
        repeated, total = f"{self.whole}_items", self.bias
        sums: list[NodeProto] = []
        for number, mask in enumerate(self.masks):
            sums.append(helper.make_node("Add", [mask, total], [f"{self.whole}_window_{number}"]))
            total = sums[-1].output[0]
        return [
            *sums,
            helper.make_node("Expand", [total, self.split_target], [repeated]),
            helper.make_node("Reshape", [repeated, self.merge_target], [self.whole]),
            helper.make_node("Add", [self.scores, self.whole], [f"{self.whole}ed"]),
        ]

    def value_info(self) -> ValueInfoProto:
        return helper.make_tensor_value_info(self.whole, onnx.TensorProto.FLOAT, [None, *self.sizes])


def find_window_masks(model: ModelProto) -> list[WindowMask]:
    """Find the masks of windows in the main graph."""
    splits = {node.output[0] for node in model.graph.node if node.op_type == "Reshape"}
    if not any(node.op_type == "Add" and not splits.isdisjoint(node.input) for node in model.graph.node):
        return []
    return list(_Finder(model).masks())


def join_window_masks(model: ModelProto) -> None:
    """Let scores get the bias and the mask of their window at once, in place."""
    masks = {mask.softmax.output[0]: mask for mask in find_window_masks(model)}
    nodes: list[NodeProto] = []
    for node in model.graph.node:
        mask = masks.get(node.output[0])
        if mask is not None:
            nodes += mask.nodes()
            node.input[0] = nodes[-1].output[0]
            model.graph.value_info.append(mask.value_info())
        nodes.append(node)
    replace_items(model.graph.node, nodes)


class _Finder:
    def __init__(self, model: ModelProto) -> None:
        self._nodes = model.graph.node
        self._made = ProducingNodes(model.graph)
        self._reader = SizeReader(model)

    def masks(self) -> Iterator[WindowMask]:
        for softmax in self._nodes:
            if softmax.op_type == "Softmax":
                mask = self._mask(softmax)
                if mask is not None:
                    yield mask

    def _mask(self, softmax: NodeProto) -> WindowMask | None:
        """The mask of the scores that a Softmax reads; None without one."""
        merge = self._made.before(softmax, 0, "Reshape")
        if merge is None:
            return None
        split, masks = self._unmasked(merge.input[0])
        biased = self._made.before(split, 0, "Add")
        if split is None or biased is None or not masks:
            return None
        scores, bias = sorted(biased.input, key=lambda name: self._sizes(name)[:1] == (ONE,))
        if self._sizes(bias)[:1] != (ONE,) or not all(self._fits(split, merge, mask) for mask in masks):
            return None
        heads, queries, keys = (size.number for size in self._sizes(merge.output[0])[1:] if size)
        sizes = heads, queries, keys
        return WindowMask(softmax, scores, bias, tuple(masks), split.input[1], merge.input[1], sizes)

    def _unmasked(self, value: str) -> tuple[NodeProto | None, list[str]]:
        """The Reshape behind additions of masks, and the masks; SwinV2 adds the same one twice."""
        split = self._made.of_type(value, "Reshape")
        added = self._made.of_type(value, "Add")
        if split is not None or added is None:
            return split, []
        for inner, mask in (added.input, reversed(added.input)):
            split, masks = self._unmasked(inner)
            if split is not None:
                return split, [*masks, mask]
        return None, []

    def _fits(self, split: NodeProto, merge: NodeProto, mask: str) -> bool:
        """Tell if reshaping touches only items and windows, and if all items have the same mask."""
        before, between, after = map(self._sizes, (split.input[0], split.output[0], merge.output[0]))
        own, target = self._sizes(mask), self._reader.numbers(split.input[1]) or (Size(0),)
        if (len(before), len(between), len(after), len(own)) != (4, 5, 4, 5) or own[0] != Size(1):
            return False
        is_known = all(size is not None and not size.symbols for size in before[1:])
        is_stated = all(size is None or size.number > 0 for size in target)  # Expand knows no -1
        return is_known and is_stated and before[1:] == between[2:] == after[1:]

    def _sizes(self, value: str) -> tuple[Size | None, ...]:
        return self._reader.sizes(value) or ()
