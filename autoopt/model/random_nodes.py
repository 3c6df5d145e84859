"""Nodes that draw random numbers: counted, and kept apart by libraries that join nodes with equal inputs."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from autoopt.model.lazy_imports import helper, numpy_helper, onnx
from autoopt.model.tensors import bodies, graphs, nodes, plain_domain

if TYPE_CHECKING:
    from onnx import AttributeProto, FunctionProto, ModelProto, NodeProto, TensorProto

RANDOM_OPS: Final = frozenset(
    ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
)
"""Operators whose result differs from one run to the next. Dropout in training mode is another."""
FIRST_SEED: Final = 1 << 20
"""Seeds that tell random nodes apart count from here: float32 holds them exactly."""


def is_random(node: NodeProto, disabled: Collection[str] = ()) -> bool:
    """Tell if a node draws random numbers. A Dropout does unless its training mode is one of `disabled`."""
    if plain_domain(node.domain):
        return False
    is_training = node.op_type == "Dropout" and len(node.input) > 2 and node.input[2] not in ("", *disabled)
    return node.op_type in RANDOM_OPS or is_training


@contextmanager
def distinct_seeds(model: ModelProto, *, by_name: bool = False) -> Iterator[Seeds]:
    """Give each random node of a model a seed of its own within the block, in place; `restore` takes them off a result.

    Libraries join nodes that have equal inputs and attributes, and would make two independent draws one. Calls of the
    model's own functions count as random if it has any random node. Seeds count in the order of the nodes, or follow
    from the names of what they draw.
    """
    disabled = _disabled(model)
    originals: dict[int, AttributeProto | None] = {}
    functions = {(each.domain, each.name) for each in model.functions}
    random = [node for node in nodes(model) if is_random(node, disabled)]
    calls = [node for node in nodes(model) if random and (node.domain, node.op_type) in functions]
    for number, node in enumerate((*random, *calls)):
        if by_name:
            number = zlib.crc32(node.output[0].encode()) % FIRST_SEED
        originals[FIRST_SEED + number] = _take_seed(node)
        kind = int if node.op_type == "Dropout" else float
        node.attribute.append(helper.make_attribute("seed", kind(FIRST_SEED + number)))
    seeds = Seeds(originals)
    try:
        yield seeds
    finally:
        seeds.restore(model)


@dataclass(frozen=True)
class Seeds:
    """The seeds that random nodes had, by those that they have meanwhile."""

    originals: Mapping[int, AttributeProto | None]

    def restore(self, model: ModelProto) -> None:
        """Give the random nodes of a model, or of one made from it, the seeds that they had, in place."""
        if not self.originals:
            return
        for node in nodes(model):
            for attribute in list(node.attribute):
                seed = attribute.f or attribute.i
                if attribute.name == "seed" and seed in self.originals:
                    original = self.originals[int(seed)]
                    node.attribute.remove(attribute)
                    if original is not None:
                        node.attribute.append(original)


def _take_seed(node: NodeProto) -> AttributeProto | None:
    for attribute in node.attribute:
        if attribute.name == "seed":
            copy = type(attribute)()
            copy.CopyFrom(attribute)
            node.attribute.remove(attribute)
            return copy
    return None


def seeded(path: Path, *, by_name: bool = False) -> bytes | None:
    """The graph of an ONNX file with a seed for each random node; None if it has none, and for other files.

    New sessions of models that draw in the same order then draw the same numbers, whatever else a pass has changed;
    with `by_name`, those whose draws have the same names.
    """
    content = path.read_bytes()
    if path.suffix in (".ort", ".json") or not any(op.encode() in content for op in (*RANDOM_OPS, "Dropout")):
        return None
    model = onnx.load_model_from_string(content)
    with distinct_seeds(model, by_name=by_name) as seeds:
        return model.SerializeToString() if seeds.originals else None


def random_nodes(model: ModelProto) -> int:
    """Count the random nodes that outputs depend on: those of functions in each call, of branches in the larger one."""
    functions = {(each.domain, each.name, each.overload): each for each in model.functions}
    return _count(model.graph.node, (value.name for value in model.graph.output), functions, _disabled(model))


def _count(
    inside: Iterable[NodeProto],
    outputs: Iterable[str],
    functions: Mapping[tuple[str, str, str], FunctionProto],
    disabled: Collection[str],
) -> int:
    """Count the random nodes of a graph or function that its outputs depend on."""
    producers = {name: node for node in inside for name in node.output if name}
    pending = list(outputs)
    seen: set[tuple[str, ...]] = set()
    total = 0
    while pending:
        node = producers.get(pending.pop())
        if node is None or tuple(node.output) in seen:
            continue
        seen.add(tuple(node.output))
        pending += node.input
        counts = [0]
        for body in bodies(node):
            pending += (name for inner in body.node for name in inner.input)
            counts.append(_count(body.node, (value.name for value in body.output), functions, disabled))
        total += max(counts) + is_random(node, disabled)
        function = functions.get((node.domain, node.op_type, node.overload))
        if function is not None:
            total += _count(function.node, function.output, functions, disabled)
    return total


def _disabled(model: ModelProto) -> set[str]:
    """Names of the constants that are false: a Dropout with one as its training mode hands its input on."""
    names = {tensor.name for graph in graphs(model) for tensor in graph.initializer if _is_false(tensor)}
    for node in nodes(model):
        if node.op_type == "Constant" and node.attribute and _is_false(node.attribute[0].t):
            names.update(node.output)
    return names


def _is_false(tensor: TensorProto) -> bool:
    return tensor.data_type == tensor.BOOL and not any(tensor.dims) and not numpy_helper.to_array(tensor)
