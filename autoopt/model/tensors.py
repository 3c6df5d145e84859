"""Walking a model: all graphs, nodes and tensors, wherever they hide. Protobuf objects in, nothing is imported."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def graphs(model: Any) -> Iterator[Any]:
    """All graphs of a model: its own, the training graphs, and the bodies within nodes, also of functions."""
    yield from _with_bodies(model.graph)
    for training in model.training_info:
        yield from _with_bodies(training.initialization)
        yield from _with_bodies(training.algorithm)
    for function in model.functions:
        for node in function.node:
            yield from _bodies(node)


def nodes(model: Any) -> Iterator[Any]:
    """All nodes of a model, in graphs and in functions."""
    for graph in graphs(model):
        yield from graph.node
    for function in model.functions:
        yield from function.node


def tensors(model: Any) -> Iterator[Any]:
    """All tensors of a model: initializers and those in attributes, also the parts of sparse ones."""
    for graph in graphs(model):
        yield from graph.initializer
        for sparse in graph.sparse_initializer:
            yield from (sparse.values, sparse.indices)
    holders = [node.attribute for node in nodes(model)]
    holders += [function.attribute_proto for function in model.functions]
    for attributes in holders:
        for attribute in attributes:
            yield from _tensors_of(attribute)


def _tensors_of(attribute: Any) -> Iterator[Any]:
    if attribute.HasField("t"):
        yield attribute.t
    yield from attribute.tensors
    sparse = list(attribute.sparse_tensors)
    if attribute.HasField("sparse_tensor"):
        sparse.append(attribute.sparse_tensor)
    for one in sparse:
        yield from (one.values, one.indices)


def _with_bodies(graph: Any) -> Iterator[Any]:
    yield graph
    for node in graph.node:
        yield from _bodies(node)


def _bodies(node: Any) -> Iterator[Any]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield from _with_bodies(attribute.g)
        for graph in attribute.graphs:
            yield from _with_bodies(graph)
