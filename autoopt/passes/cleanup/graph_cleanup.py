"""Single clean-up steps: names, unused and repeated nodes, constants, views. `simplify` combines most of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Final, TypeAlias

from autoopt.model.lazy_imports import convenience, ir, ir_passes
from autoopt.passes.base import Pass
from autoopt.passes.base.contract import RUNTIME_BOUND
from autoopt.passes.onnx_tools.graphs import DEFAULT_DOMAINS
from autoopt.passes.onnx_tools.libraries import INPUT_LIMIT, OUTPUT_LIMIT, apply_ir_passes, fold_ir_constants
from autoopt.passes.onnx_tools.weights import SMALLEST_TIED, tie_weights
from autoopt.registry import Minimum
from autoopt.space import Boolean, Categorical

VIEWS: Final = ("Reshape", "Squeeze", "Unsqueeze", "Flatten")
"""Operators that keep the order of the elements."""
Shape: TypeAlias = tuple[int | str, ...]
"""Sizes; a name, or an empty one, for an open dimension."""


class LibraryCleanup(Pass):
    """The common part of the clean-up steps that are passes of onnx-ir, named by `steps`."""

    depends_on = "model"
    tolerance = "lossless"
    libraries = ("onnx", "onnx-ir")
    steps: ClassVar[tuple[str, ...]] = ()

    def run(self, model: ir.Model) -> ir.Model | None:
        return apply_ir_passes(model, *(getattr(ir_passes, step)() for step in self.steps))


class NameFix(LibraryCleanup):
    """Gives every node and value a unique name; onnxruntime refuses models with duplicate node names."""

    touches = ("names",)
    steps = ("NameFixPass",)


class RemoveUnused(LibraryCleanup):
    """Removes nodes, weights, functions and operator sets that no output needs."""

    steps = ("RemoveUnusedNodesPass", "RemoveUnusedFunctionsPass", "RemoveUnusedOpsetsPass")


class IdentityElimination(LibraryCleanup):
    """Removes Identity nodes."""

    version = 2
    needs_ops = ("Identity",)
    aliases = ("identity_elim",)

    def run(self, model: ir.Model) -> ir.Model | None:
        return model if remove_identities(model) else None


def remove_identities(model: ir.Model) -> bool:
    """Remove the Identity nodes that no output needs, in functions and bodies too; tell if there were any."""
    removed = False
    for graph in (model.graph, *model.functions.values()):
        for node in ir.traversal.RecursiveGraphIterator(graph):
            if node.op_type == "Identity" and node.domain in DEFAULT_DOMAINS:
                removed |= _remove_identity(node)
    return removed


def _remove_identity(node: ir.Node) -> bool:
    """Remove an Identity; False if an output needs it.

    onnx-ir's own pass takes it from a body that returns an outer value, although outputs must be made in the body.
    """
    value, output = node.inputs[0], node.outputs[0]
    if value is None:
        return False
    if output.is_graph_output():
        producer = value.producer()
        if producer is None or producer.graph is not node.graph or value.is_graph_output():
            return False
        value.type, value.shape = value.type or output.type, value.shape or output.shape
        convenience.replace_all_uses_with(output, value, replace_graph_outputs=True)
        value.name = output.name
    else:
        convenience.replace_all_uses_with(output, value)
    assert node.graph is not None
    node.graph.remove(node, safe=True)
    return True


class CommonSubexpressionElimination(LibraryCleanup):
    """Computes repeated subexpressions once."""

    aliases = ("cse",)

    size_limit: Annotated[
        int, Minimum(0), Categorical(0, 10, 100), "largest constant compared by value, in elements"
    ] = 10

    def run(self, model: ir.Model) -> ir.Model | None:
        return apply_ir_passes(model, ir_passes.CommonSubexpressionEliminationPass(size_limit=self.size_limit))


class DeduplicateInitializers(LibraryCleanup):
    """Stores equal weights once."""

    aliases = ("dedup_init",)

    size_limit: Annotated[
        int, Minimum(0), Categorical(1024, 1_000_000, 4_294_967_296), "largest weight considered, in elements"
    ] = 4_294_967_296

    def run(self, model: ir.Model) -> ir.Model | None:
        return apply_ir_passes(model, ir_passes.DeduplicateHashedInitializersPass(size_limit=self.size_limit))


class TieWeights(Pass):
    """Stores weights once that a model holds twice: equal, transposed, or in another shape.

    Exports of language models with tied embeddings hold the table of tokens as such and, for the LM head, transposed.
    The file gets smaller; onnxruntime makes the copies again when it loads the model. Apply it last, because folding of
    constants undoes it.
    """

    depends_on = "model"
    conflicts = RUNTIME_BOUND
    aliases = ("tie_word_embeddings", "share_embedding_lm_head")

    smallest: Annotated[int, Minimum(0), "elements of the smallest weight considered"] = SMALLEST_TIED

    def run(self, model: ir.Model) -> ir.Model | None:
        return model if tie_weights(model, self.smallest) else None


class LiftConstants(LibraryCleanup):
    """Turns Constant nodes into weights, where quantization looks for them."""

    needs_ops = ("Constant",)

    lift_all: Annotated[bool, Boolean(), "also lift constants stored as numbers or lists instead of tensors"] = True
    size_limit: Annotated[int, Minimum(0), Categorical(0, 1, 16), "smallest constant to lift, in elements"] = 0

    def run(self, model: ir.Model) -> ir.Model | None:
        lift = ir_passes.LiftConstantsToInitializersPass(lift_all_constants=self.lift_all, size_limit=self.size_limit)
        return apply_ir_passes(model, lift)


class LiftSubgraphInitializers(LibraryCleanup):
    """Moves weights from the bodies of If, Loop and Scan into the main graph."""

    needs_ops = ("If", "Loop", "Scan", "SequenceMap")
    aliases = ("lift_subgraph_init",)
    steps = ("LiftSubgraphInitializersToMainGraphPass",)


class InputsClean(LibraryCleanup):
    """Removes weights from the inputs, which makes them constant, so that other passes can fold them."""

    steps = ("RemoveInitializersFromInputsPass",)

    def run(self, model: ir.Model) -> ir.Model | None:
        model.ir_version = max(model.ir_version, 4)  # earlier versions require weights to be inputs
        return super().run(model)


class ConstantFolding(Pass):
    """Computes everything that depends only on constants ahead of time.

    Larger limits fold more and make larger files: a folded Expand stores every element.
    """

    depends_on = "model"
    requires = ("shape_inference",)
    conflicts = RUNTIME_BOUND
    libraries = ("onnx", "onnx-ir", "onnxscript")
    aliases = ("fold_constants",)

    input_size_limit: Annotated[
        int, Categorical(1024, INPUT_LIMIT, 1_000_000), "largest input of a folded node, in elements"
    ] = INPUT_LIMIT
    output_size_limit: Annotated[
        int, Categorical(65536, OUTPUT_LIMIT, 10_000_000), "largest output of a folded node, in elements"
    ] = OUTPUT_LIMIT

    def run(self, model: ir.Model) -> ir.Model | None:
        return fold_ir_constants(model, self.input_size_limit, self.output_size_limit)


class MergeReshapes(Pass):
    """Joins operators that only change the shape of a value, such as Squeeze and Unsqueeze, into one Reshape.

    A Transpose that moves only dimensions of size 1 counts as one. Small models take much of their time for calls of
    such operators, which recurrent layers have around them.
    """

    tolerance = "lossless"
    needs_ops = (*VIEWS, "Transpose")
    conflicts = RUNTIME_BOUND
    libraries = ("onnx", "onnx-ir")

    def run(self, model: ir.Model) -> ir.Model | None:
        model = apply_ir_passes(
            model, ir_passes.ShapeInferencePass(check_type=False, strict_mode=False, data_prop=False)
        )
        merged = [_merge(chain) for chain in list(_chains(model.graph))]
        return model if any(merged) else None


def _chains(graph: ir.Graph) -> Iterator[list[ir.Node]]:
    """The longest chains of views, each from first to last; only the next view reads the value of another one."""
    for node in graph:
        if not _is_view(node) or _has_view_behind(node):
            continue
        chain = [node]
        while (before := chain[0].inputs[0] and chain[0].inputs[0].producer()) is not None:
            if before.graph is not node.graph or not _is_view(before) or not _has_view_behind(before):
                break
            chain.insert(0, before)
        yield chain


def _merge(chain: list[ir.Node]) -> bool:
    """Turn a chain of views into one for all; return False if it is one already."""
    source, last = chain[0].inputs[0], chain[-1]
    result, graph = last.outputs[0], last.graph
    shape = _shape(result)
    sizes = _target(shape)
    is_single = len(chain) == 1 and last.op_type != "Transpose"
    if is_single or not sizes or source is None:
        return False
    assert isinstance(graph, ir.Graph)
    if shape == _shape(source) and "" not in shape and not result.is_graph_output():
        convenience.replace_all_uses_with(result, source)
        graph.remove(chain, safe=True)
        return True
    name = f"{result.name}/merged_shape"
    target = ir.Value(name=name, const_value=ir.tensor(sizes, ir.DataType.INT64, name=name))
    graph.register_initializer(target)
    view = ir.node("Reshape", [source, target], name=last.name)
    convenience.replace_nodes_and_values(graph, last, chain, [view], [result], view.outputs)
    return True


def _target(shape: Shape) -> list[int]:
    """The sizes that let a Reshape give a shape; none if they do not determine it."""
    sizes = [size if isinstance(size, int) else -1 for size in shape]
    return [] if 0 in sizes or sizes.count(-1) > 1 else sizes


def _is_view(node: ir.Node) -> bool:
    if node.domain not in DEFAULT_DOMAINS or not node.inputs or node.inputs[0] is None:
        return False
    if node.op_type != "Transpose":
        return node.op_type in VIEWS
    shape = _shape(node.inputs[0])
    order = node.attributes.get_ints("perm", range(len(shape))[::-1])
    moved = [axis for axis in order if axis < len(shape) and shape[axis] != 1]
    return bool(shape) and moved == sorted(moved)


def _has_view_behind(node: ir.Node) -> bool:
    """Tell if a view is all that reads the value of another one."""
    value = node.outputs[0]
    uses = value.uses()
    if value.is_graph_output() or len(uses) != 1:
        return False
    use = next(iter(uses))
    return use.idx == 0 and use.node.graph is node.graph and _is_view(use.node)


def _shape(value: ir.Value) -> Shape:
    """The sizes of a value; none if its rank is unknown."""
    if value.shape is None:
        return ()
    return tuple(size if isinstance(size, int) else size.value or "" for size in value.shape)
