"""Bodies of If, Loop and Scan quantized as models of their own, with the inputs that they get from calibration data."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from autoopt.model import io
from autoopt.model.lazy_imports import helper, ir, np, numpy_helper
from autoopt.model.session import make_plain_session
from autoopt.model.tensors import bodies, names_of, walk_graphs
from autoopt.passes.base import PassContext, Retry
from autoopt.passes.base.conversion import to_ir
from autoopt.passes.onnx_tools.graphs import (
    attribute_values,
    constant_tensors,
    defined_names,
    is_standard,
    read_names,
    rename_inputs,
    replace_items,
    walk_nodes,
)
from autoopt.passes.onnx_tools.weights import weighted_nodes
from autoopt.passes.quantize.calibration import CalibrationReader, enough_items, items_for
from autoopt.passes.quantize.layer_errors import run_values

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto
    from onnxruntime import InferenceSession

Feed: TypeAlias = "dict[str, np.ndarray]"
Values: TypeAlias = "Mapping[str, np.ndarray]"


class Body:
    """A body as a model. What it reads from outside are inputs or, if it is fixed, weights.

    Args:
        graph: the body.
        name: the name of its node and attribute, which opens all names that are new in the body.
        outer: the model whose main graph holds its node.
        work: folder for temporary files.
    """

    def __init__(self, graph: GraphProto, name: str, outer: ModelProto, work: Path) -> None:
        self.items: list[Feed] = []
        """Inputs that it got, evenly spread over all its runs."""
        constants = constant_tensors(outer.graph)
        inner: set[str] = set()
        outside = read_names(graph) - inner.union(*map(defined_names, walk_graphs(graph))) - {""}
        self.captured = sorted(outside - constants.keys())
        """Names of the values that it reads from outside, without weights."""
        self._weights: dict[str, TensorProto] = {}
        for value in sorted(outside & constants.keys()):
            self._weights[value] = deepcopy(constants[value])
            self._weights[value].name = value
        self._graph = graph
        self._name = name
        self._outer = outer
        self._work = work
        self._session: InferenceSession | None = None
        self._runs = 0
        self._step = 1

    def feed(self, arguments: Sequence[np.ndarray], values: Values) -> Feed:
        """The inputs of a run with these arguments, within these values of the outer graph."""
        feed = {name: values[name] for name in self.captured}
        for value, argument in zip(self._graph.input, arguments, strict=True):
            feed[value.name] = argument
        if self._runs % self._step == 0:
            if len(self.items) >= items_for(feed):
                self.items = self.items[::2]
                self._step *= 2
            self.items.append(feed)
        self._runs += 1
        return feed

    def scalar(self, value: int | bool, index: int) -> np.ndarray:
        """A value for one of the inputs that are scalars, some of which models declare as tensors of one element."""
        rank = len(self._graph.input[index].type.tensor_type.shape.dim)
        return np.array(value, np.bool_ if isinstance(value, bool) else np.int64).reshape([1] * rank)

    def feeds(self) -> Iterator[Feed]:
        """Iterate over the items."""
        return iter(self.items)

    def run(self, feed: Feed) -> list[Any]:
        """The outputs of the body for its inputs."""
        if self._session is None:
            self._session = make_plain_session(io.save(self.model(), self._work))
        outputs: list[Any] = self._session.run(None, feed)
        return outputs

    def model(self) -> ModelProto:
        """The body as a model that takes its `items`."""
        graph = deepcopy(self._graph)
        inputs = []
        for name, array in self.items[0].items():
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            inputs.append(helper.make_tensor_value_info(name, kind, [None] * array.ndim))
        replace_items(graph.input, inputs)
        graph.initializer.extend(self._weights.values())
        opsets = list(self._outer.opset_import)
        return helper.make_model(graph, opset_imports=opsets, ir_version=self._outer.ir_version)

    def replace(self, new: ModelProto) -> None:
        """Take over nodes, weights and domains of another form of the `model`, which is changed."""
        weights = [tensor for tensor in new.graph.initializer if tensor != self._weights.get(tensor.name)]
        made = names_of(weights).union(*(node.output for node in new.graph.node)) - {""}
        renamed = {name: f"{self._name}/{name}" for name in made - defined_names(self._graph)}
        known_nodes = names_of(self._graph.node)
        for tensor in weights:
            tensor.name = renamed.get(tensor.name, tensor.name)
        rename_inputs(walk_nodes(new.graph), renamed)
        for node in new.graph.node:
            node.output[:] = [renamed.get(name, name) for name in node.output]
            if node.name not in known_nodes:
                node.name = f"{self._name}/{node.name}"
        replace_items(self._graph.node, new.graph.node)
        replace_items(self._graph.initializer, weights)
        del self._graph.value_info[:]
        imported = {entry.domain for entry in self._outer.opset_import}
        self._outer.opset_import.extend(entry for entry in new.opset_import if entry.domain not in imported)


def quantize_bodies(
    model: ModelProto,
    layers: Collection[str],
    context: PassContext,
    limit: int,
    quantize: Callable[[ir.Model, PassContext], ModelProto | Retry],
) -> Retry | None:
    """Quantize the bodies of the main graph's nodes that hold weights, in place. Bodies that never run stay in float.

    Args:
        model: the float model, at opset 11 or later.
        layers: operator types that count as layers if they read a weight.
        context: that of the running pass.
        limit: maximum number of calibration items; 0 for as many as ranges need.
        quantize: quantizes the main graph and the bodies of a model, whose data is that of the context.

    Returns:
        The first request for other parameters.
    """
    for number, node in _nodes_with_layers(model, layers):
        work = context.work / f"bodies-{number}"
        feeds = CalibrationReader(context, limit or enough_items(context))
        for body in _bodies_with_items(model, node, feeds, work):
            before = to_ir(body.model())
            if not any(True for _ in weighted_nodes(before, layers)):
                continue
            own_work = Path(tempfile.mkdtemp(dir=work))
            quantized = quantize(before, replace(context, work=own_work, calibration=body.feeds))
            if isinstance(quantized, Retry):
                return quantized
            body.replace(quantized)
    _drop_unread_constants(model)
    return None


def _nodes_with_layers(model: ModelProto, layers: Collection[str]) -> Iterator[tuple[int, NodeProto]]:
    """Yield the nodes of the main graph that run bodies with such layers, with their numbers."""
    for number, node in enumerate(model.graph.node):
        inner_types = {inner.op_type for body in bodies(node) for inner in body.node}
        if is_standard(node) and node.op_type in RUNS and not inner_types.isdisjoint(layers):
            yield number, node


def _drop_unread_constants(model: ModelProto) -> None:
    """Drop the weights of the main graph that nothing reads."""
    graph = model.graph
    needed = read_names(graph) | names_of(graph.input)
    replace_items(graph.initializer, [tensor for tensor in graph.initializer if tensor.name in needed])
    replace_items(graph.node, [node for node in graph.node if node.op_type != "Constant" or node.output[0] in needed])


def _bodies_with_items(
    model: ModelProto, node: NodeProto, feeds: Iterable[Mapping[str, np.ndarray]], work: Path
) -> list[Body]:
    """Run the bodies of a node of the main graph as the model does for each feed; return those that ran."""
    constants = constant_tensors(model.graph)
    own: dict[str, Body] = {}
    for attribute in node.attribute:
        if attribute.HasField("g"):
            name = f"{node.name}/{attribute.name}"
            own[attribute.name] = Body(attribute.g, name, model, work / attribute.name)
    names = {name for name in node.input if name}.union(*(body.captured for body in own.values()))
    fixed = {name: numpy_helper.to_array(constants[name]) for name in names & constants.keys()}
    for values in run_values(model, sorted(names - constants.keys()), feeds, work / "outer"):
        RUNS[node.op_type](node, own, {**values, **fixed})
    return [body for body in own.values() if body.items]


def _run_if(node: NodeProto, own: Mapping[str, Body], values: Values) -> None:
    branch = "then_branch" if values[node.input[0]].item() else "else_branch"
    own[branch].feed([], values)


def _run_loop(node: NodeProto, own: Mapping[str, Body], values: Values) -> None:
    body = own["body"]
    iterations, condition, *carried_names = [*node.input, ""][: max(2, len(node.input))]
    limit = math.inf
    if iterations:
        limit = values[iterations].item()
    goes_on = not condition or bool(values[condition].item())
    carried = [values[name] for name in carried_names]
    iteration = 0
    while goes_on and iteration < limit:
        feed = body.feed([body.scalar(iteration, 0), body.scalar(True, 1), *carried], values)
        goes_on, *results = body.run(feed)
        carried = results[: len(carried)]
        iteration += 1


def _run_scan(node: NodeProto, own: Mapping[str, Body], values: Values) -> None:
    body = own["body"]
    attributes = attribute_values(node)
    count = attributes["num_scan_inputs"]
    states = [values[name] for name in node.input[:-count]]
    sequences = []
    axes, directions = (attributes.get(f"scan_input_{key}", [0] * count) for key in ("axes", "directions"))
    for name, axis, backwards in zip(node.input[-count:], axes, directions, strict=True):
        sequence = np.moveaxis(values[name], axis, 0)
        sequences.append(sequence[::-1] if backwards else sequence)
    for slices in zip(*sequences, strict=True):
        feed = body.feed([*states, *map(np.array, slices)], values)
        states = body.run(feed)[: len(states)]


RUNS: Final[Mapping[str, Callable[[NodeProto, Mapping[str, Body], Values], None]]] = {
    "If": _run_if,
    "Loop": _run_loop,
    "Scan": _run_scan,
}
"""Functions that run the bodies of a node once, by operator."""
