"""Recurrent cells that exporters left in a Loop or Scan, computed by the operators GRU, LSTM and RNN."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Final

from autoopt.errors import one_line
from autoopt.model.lazy_imports import convenience, helper, ir, ir_passes, np, numpy_helper
from autoopt.passes.base import Pass, Refused
from autoopt.passes.base.contract import FUSIONS
from autoopt.passes.cleanup.recurrent import is_zero, move_invariants
from autoopt.passes.cleanup.recurrent_loops import (
    Items,
    RecurrentLoop,
    Stack,
    State,
    find_sequences,
    fixed_value,
    iteration_counts,
    read_loop,
)
from autoopt.passes.cleanup.rnn_cells import POINTS, Cell, NotACellError, Values, recognize
from autoopt.passes.onnx_tools.graphs import DEFAULT_DOMAINS
from autoopt.passes.onnx_tools.libraries import apply_ir_passes, fold_ir_constants

if TYPE_CHECKING:
    from numpy import ndarray
    from onnx import NodeProto

LOWEST_OPSET: Final = 13
"""The first opset in which the axes of Squeeze are an input."""
WEIGHTS: Final = 2**23
"""Elements of the largest weights that are known although a body cuts or joins them."""
LINEAR: Final = frozenset(
    ("Add", "Concat", "Div", "Expand", "Gather", "Gemm", "Identity", "MatMul", "Mul", "Neg", "Reshape")
) | frozenset(("Shape", "Slice", "Split", "Squeeze", "Sub", "Transpose", "Unsqueeze"))
"""Operators of a cell beside its activations: with them, it is an analytic function of its inputs."""
LAYERS: Final = {"GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"], "RNN": ["Tanh"]}
"""Operators that compute a cell for one item, with the activations of the formula."""
CHANGING: Final = frozenset(("activation_alpha", "activation_beta", "clip", "input_forget"))
"""Attributes of them that change the formula."""
OF_NUMBERS: Final = frozenset(("Add", "Cast", "Identity", "Mul", "Neg", "Reshape", "Squeeze", "Sub", "Unsqueeze"))
"""Operators that compute which item an iteration reads."""
OF_MASKS: Final = frozenset(("Cast", "Expand", "Identity", "Not", "Reshape", "Squeeze", "Sub", "Tile", "Unsqueeze"))
"""Operators that compute from the item of a mask which states are kept."""
LAST: Final = -(2**63)
"""The end of a Slice that goes back to the first item."""


class LoopToRnn(Pass):
    """Computes recurrent cells in a Loop or Scan with the operators GRU, LSTM and RNN.

    Exporters write one iteration per item for layers that they do not know, such as those of scripted modules. The
    operator runs all items in one kernel. Like the layers of PyTorch and Keras, it takes no sequence without items.
    Where a mask keeps the states, the operator runs over the other items, moved to the front, with their number as
    length; its results are moved back.
    """

    version = 2
    depends_on = "model"
    needs_ops = ("Loop", "Scan")
    conflicts = FUSIONS
    libraries = ("onnx", "onnx-ir")

    def run(self, model: ir.Model) -> ir.Model | None:
        opset = max(model.opset_imports.get(domain, 0) for domain in DEFAULT_DOMAINS)
        if opset < LOWEST_OPSET:
            raise Refused(f"opset {opset} is below {LOWEST_OPSET}; opset_conversion raises it")
        loops = [node for node in model.graph.all_nodes() if node.op_type in self.needs_ops]
        model = apply_ir_passes(model, ir_passes.LiftSubgraphInitializersToMainGraphPass())
        for node in reversed(loops):  # inner loops first
            move_invariants(node)
        infer_shapes = ir_passes.ShapeInferencePass(check_type=False, strict_mode=False)
        loops = [node for node in model.graph.all_nodes() if node.op_type in self.needs_ops]
        model = apply_ir_passes(fold_ir_constants(model, WEIGHTS, WEIGHTS, _values_of(loops)), infer_shapes)
        loops = [node for node in model.graph.all_nodes() if node.op_type in self.needs_ops]
        reasons: list[str] = []
        for node in loops:
            try:
                _replace(read_loop(node), opset)
            except NotACellError as reason:
                reasons.append(f"{node.op_type} {node.name!r} holds no GRU, LSTM or RNN cell: {reason}")
        if len(reasons) == len(loops):
            raise Refused(reasons[0] if reasons else "it has no loop")
        lift = ir_passes.LiftConstantsToInitializersPass(lift_all_constants=False, size_limit=1)
        return apply_ir_passes(model, ir_passes.RemoveUnusedNodesPass(), lift)


def _values_of(loops: Sequence[ir.Node]) -> set[str]:
    """The names of all values that these loops compute or depend on."""
    nodes = [node for loop in loops for node in (loop, *loop.attributes["body"].as_graph().all_nodes())]
    seen = set(nodes)
    for node in nodes:
        before = {value.producer() for value in node.inputs if value is not None} - seen - {None}
        seen |= before
        nodes += before
    return {str(value.name) for node in nodes for value in node.outputs}


class _Function:
    """The body as a function of an item and the states, in double precision."""

    def __init__(self, loop: RecurrentLoop, opset: int) -> None:
        from onnx.reference import ReferenceEvaluator

        self.loop = loop
        self.mask = loop.mask
        self.changes_at = True
        """The value of the mask at which an item changes the states."""
        inputs = [loop.items.item, *(state.before for state in loop.states)]
        if self.mask is not None:
            inputs.append(self.mask.item)
        outputs = [*(state.after for state in loop.states), *(stack.each for stack in loop.stacks)]
        nodes = self._needed(outputs, inputs)
        arguments = {name: [node.inputs[0] for node in nodes if node.op_type == name] for name in ("Sigmoid", "Tanh")}
        fixed = self._weights(nodes, inputs)
        self.inputs = [str(value.name) for value in inputs]
        self.names = [str(value.name) for value in (*outputs, *arguments["Sigmoid"], *arguments["Tanh"])]
        self.counts = (len(loop.states), len(loop.stacks), len(arguments["Sigmoid"]))
        self.layers = [_layer(node, fixed) for node in nodes if node.op_type in LAYERS]
        self.leads: list[int] = []
        """Axes of size 1 in front of the batch, of each output and stacked value."""
        graph = helper.make_graph(
            list(map(_in_double_precision, nodes)),
            "body",
            list(map(helper.make_empty_tensor_value_info, self.inputs)),
            list(map(helper.make_empty_tensor_value_info, dict.fromkeys(self.names))),
            [numpy_helper.from_array(array, name) for name, array in fixed.items()],
        )
        self.evaluator = ReferenceEvaluator(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)]))

    def _needed(self, outputs: Sequence[ir.Value], inputs: Sequence[ir.Value]) -> list[ir.Node]:
        """The nodes of the body from inputs to outputs, in order."""
        of_mask = self._values_of_mask()
        needed, waiting = set(), [value.producer() for value in outputs]
        for node in waiting:
            if node is None or node in needed or node.graph is not self.loop.body or node.outputs[0] in inputs:
                continue
            is_known = node.op_type in LINEAR | LAYERS.keys() | {"Sigmoid", "Tanh"} or node.outputs[0] in of_mask
            keeps = node.op_type == "Where" and node.inputs[0] in of_mask
            if not (is_known or keeps) or node.domain not in DEFAULT_DOMAINS:
                raise NotACellError(f"it has the operator {node.op_type}")
            needed.add(node)
            waiting += [each.producer() for each in node.inputs if each is not None and fixed_value(each) is None]
        return [node for node in self.loop.body if node in needed]

    def _values_of_mask(self) -> set[ir.Value]:
        """The values of the body that depend on nothing but an item of the mask."""
        values = set() if self.mask is None else {self.mask.item}
        for node in self.loop.body:
            others = [each for each in node.inputs if each is not None and fixed_value(self.loop.outer(each)) is None]
            if node.op_type in OF_MASKS and others and values.issuperset(others):
                values.update(node.outputs)
        return values

    def _weights(self, nodes: Sequence[ir.Node], inputs: Sequence[ir.Value]) -> dict[str, ndarray]:
        """The fixed values that nodes read, by name; those of float32 in double precision."""
        read = {each for node in nodes for each in node.inputs if each is not None}
        made = {each for node in nodes for each in node.outputs}
        weights: dict[str, ndarray] = {}
        for value in read.difference(made, inputs):
            array = fixed_value(self.loop.outer(value))
            if array is None:
                raise NotACellError(f"it depends on {value.name!r}, which is neither fixed nor its item or state")
            if array.dtype == np.float32:
                array = array.astype(np.float64)
            weights[str(value.name)] = array
        return weights

    def __call__(self, item: ndarray, states: list[ndarray], changes: ndarray | None = None) -> Values:
        """The values of the body for rows of items and states; the items change the states of these rows, or of all.

        Raises:
            NotACellError: They cannot be computed, or are no rows.
        """
        feeds = [self.loop.items.feed(item)]
        for state, value in zip(self.loop.states, states, strict=True):
            feeds.append(value[None] if _rank(state.before, state.initial) == 3 else value)
        if self.mask is not None:
            changed = np.full(len(item), True) if changes is None else changes
            feeds.append(self.mask.feed((changed == self.changes_at).reshape(-1, *[1] * (_rank(self.mask.all) - 2))))
        try:
            found = self.evaluator.run(self.names, dict(zip(self.inputs, feeds, strict=True)))
        except Exception as error:  # any exception type of numpy
            raise NotACellError(
                f"it cannot be computed for {len(item)} items at once: {one_line(str(error))}"
            ) from error
        self.leads = [values.ndim - 2 for values in found[: sum(self.counts[:2])]]
        for values in found:
            if values.ndim not in (2, 3) or values.shape[-2] != len(item) or (values.ndim == 3 and len(values) != 1):
                raise NotACellError("it does not compute one row for each item of the batch")
        rows = [values.reshape(len(item), -1) for values in found]
        after, stacked, sigmoids, tanhs = (
            rows[begin:end] for begin, end in pairwise(accumulate((0, *self.counts, len(rows) - sum(self.counts))))
        )
        return Values(np.concatenate([np.zeros((len(item), 0)), *sigmoids], axis=1), tanhs, after, stacked)


def _in_double_precision(node: ir.Node) -> NodeProto:
    """A node of the body as a protobuf; what it makes float32 is float64."""
    proto = ir.to_proto(node)
    for attribute in proto.attribute:
        if node.op_type == "Cast" and attribute.i == ir.DataType.FLOAT:
            attribute.i = ir.DataType.DOUBLE
    return proto


def _layer(node: ir.Node, fixed: Mapping[str, ndarray]) -> Cell:
    """The cell of a layer that the body has for one item.

    Raises:
        NotACellError: Its attributes change the formula. The evaluator does not know them.
    """
    activations = node.attributes.get_strings("activations", LAYERS[node.op_type])
    if list(activations) != LAYERS[node.op_type] or not CHANGING.isdisjoint(node.attributes):
        raise NotACellError(f"its {node.op_type} has other activations or limits")
    if node.attributes.get_string("direction", "forward") != "forward":
        raise NotACellError(f"its {node.op_type} has another direction")
    arrays = [fixed[str(value.name)] for value in node.inputs[1:4] if value is not None]
    return Cell.of(node.op_type, arrays, resets_after=bool(node.attributes.get_int("linear_before_reset", 0)))


def _rank(*values: ir.Value | None) -> int:
    """The number of axes of the first value whose shape is known; 2 if there is none."""
    return next((len(value.shape) for value in values if value is not None and value.shape is not None), 2)


def _width(*values: ir.Value) -> int:
    """The last size of the first value of which it is known."""
    sizes = [value.shape[-1] for value in values if value.shape is not None]
    known = [size for size in sizes if isinstance(size, int)]
    if not known:
        raise NotACellError(f"the size of {values[0].name!r} is not known")
    return known[0]


class _Nodes:
    """The nodes in place of a loop."""

    def __init__(self, loop: RecurrentLoop) -> None:
        self.loop = loop
        self.tape = ir.tape.Tape()
        self.op = self.tape.op

    def fixed(self, array: ndarray) -> ir.Value:
        """A fixed value."""
        return self.op("Constant", [], {"value": ir.tensor(array)})

    def ints(self, *values: int) -> ir.Value:
        """A fixed vector of integers."""
        return self.fixed(np.array(values, np.int64))

    def number(self, value: ir.Value) -> ir.Value:
        """An integer from outside, as a vector of length 1."""
        return self.op("Reshape", [self.op("Cast", [value], {"to": ir.DataType.INT64}), self.ints(1)])

    def backward(self, value: ir.Value, axis: int) -> ir.Value:
        """A value in the opposite order along an axis."""
        return self.op("Slice", [value, self.ints(-1), self.ints(LAST), self.ints(axis), self.ints(-1)])

    def in_order(self, items: Items, counts: Sequence[ir.Value]) -> ir.Value:
        """A sequence in the order of the iterations, on the first axis."""
        rank = _rank(items.all)
        axis = items.axis % rank
        value = self.backward(items.all, axis) if items.is_backward else items.all
        if items.index is not None:
            numbers = list(map(self.number, counts))
            count = numbers[0] if len(numbers) == 1 else self.op("Min", numbers)
            zero, one = (self.fixed(np.array(value, np.int64)) for value in (0, 1))
            iterations = self.op("Range", [zero, self.op("Squeeze", [count]), one])
            value = self.op("Gather", [value, self.places(items.index, iterations)], {"axis": axis})
        return value if axis == 0 else self.op("Transpose", [value], {"perm": [1, 0, *range(2, rank)]})

    def places(self, index: ir.Value, iterations: ir.Value) -> ir.Value:
        """The values of an integer of the body in all iterations."""
        index = self.loop.outer(index)
        node = index.producer()
        if index in self.loop.numbers:
            initial, step = self.loop.numbers[index]
            counted = self.op("Mul", [iterations, self.ints(step)])
            return counted if initial is None else self.op("Add", [counted, self.number(initial)])
        if not self.loop.is_inside(index) or node is None or node.op_type == "Constant":
            return self.number(index)
        if node.op_type not in OF_NUMBERS or index.dtype not in (None, ir.DataType.INT32, ir.DataType.INT64):
            raise NotACellError(f"it reads the item that {node.op_type} gives")
        if node.op_type not in ("Add", "Sub", "Mul", "Neg"):
            return self.places(node.inputs[0], iterations)
        return self.op(node.op_type, [self.places(each, iterations) for each in node.inputs])

    def changes(self, mask: Items, counts: Sequence[ir.Value], changes_at: bool, items: ir.Value) -> ir.Value:
        """1 where an item changes the states, else 0: with the axes items and batch, those of `items`."""
        value = self.in_order(mask, counts)
        if _rank(mask.all) == 3:
            value = self.op("Squeeze", [value, self.ints(2)])
        if not changes_at:
            value = self.op("Not", [value])
        value = self.op("Cast", [value], {"to": ir.DataType.INT64})
        # A mask may have one value for the whole batch.
        return self.op("Expand", [value, self.op("Slice", [self.op("Shape", [items]), self.ints(0), self.ints(2)])])

    def initial(self, state: State, items: ir.Value, width: int) -> ir.Value | None:
        """The initial state with three axes; None if it is zero."""
        value = state.initial
        if is_zero(value):
            return None
        shape = value.shape
        if shape is not None and (len(shape) not in (2, 3) or (len(shape) == 3 and shape[0] != 1)):
            raise NotACellError("its states have other axes than batch and values")
        if _rank(value, state.before) == 2:
            value = self.op("Unsqueeze", [value, self.ints(0)])
        batch = None if state.initial.shape is None else state.initial.shape[-2]
        if batch != 1:
            return value
        batch = self.op("Slice", [self.op("Shape", [items]), self.ints(1), self.ints(2)])
        return self.op("Expand", [value, self.op("Concat", [self.ints(1), batch, self.ints(width)], {"axis": 0})])

    def stacked(self, stack: Stack, states: ir.Value, lead: int) -> ir.Value:
        """The states of all iterations along an axis."""
        if lead == 0:
            states = self.op("Squeeze", [states, self.ints(1)])
        if stack.is_backward:
            states = self.backward(states, 0)
        axes = list(range(1, 3 + lead))
        axes.insert(stack.axis % (3 + lead), 0)
        return self.op("Transpose", [states], {"perm": axes}) if axes[0] else states


@dataclass(frozen=True)
class _Mask:
    """The mask of the items that change the states, as nodes."""

    nodes: _Nodes
    changes: ir.Value
    """1 where an item changes the states, else 0."""

    def moved_to_front(self, items: ir.Value) -> ir.Value:
        """The items that change the states in front of the others."""
        op, ints = self.nodes.op, self.nodes.ints
        count = op("Slice", [op("Shape", [self.changes]), ints(0), ints(1)])
        zero, one = (self.nodes.fixed(np.array(value, np.int64)) for value in (0, 1))
        numbers = op("Unsqueeze", [op("Range", [zero, op("Squeeze", [count]), one]), ints(1)])
        ranks = op("Mul", [self.changes, op("Sub", [count, numbers])])
        _, order = self.nodes.tape.op_multi_out("TopK", [ranks, count], {"axis": 0}, num_outputs=2)
        at = op("Expand", [op("Unsqueeze", [order, ints(2)]), op("Shape", [items])])
        return op("GatherElements", [items, at], {"axis": 0})

    @cached_property
    def lengths(self) -> ir.Value:
        """The number of items that change the states, for each of the batch."""
        total = self.nodes.op("ReduceSum", [self.changes, self.nodes.ints(0)], {"keepdims": 0})
        return self.nodes.op("Cast", [total], {"to": ir.DataType.INT32})

    def last(self, final: ir.Value, initial: ir.Value | None) -> ir.Value:
        """The last state, which is the initial one where no item changes it: the operator gives zero."""
        if initial is None:
            return final
        changes = self.nodes.op("Unsqueeze", [self.lengths, self.nodes.ints(0, 2)])
        is_any = self.nodes.op("Cast", [changes], {"to": ir.DataType.BOOL})
        return self.nodes.op("Where", [is_any, final, initial])

    def moved_back(self, states: ir.Value, initial: ir.Value | None) -> ir.Value:
        """The state after each item, of which the operator has those of the items in front."""
        op, ints = self.nodes.op, self.nodes.ints
        done = op("Unsqueeze", [op("CumSum", [self.changes, ints(0)]), ints(1, 3)])
        at = op("Max", [op("Sub", [done, ints(1)]), ints(0)])
        last = op("GatherElements", [states, op("Expand", [at, op("Shape", [states])])], {"axis": 0})
        start = self.nodes.fixed(np.zeros((), np.float32)) if initial is None else op("Unsqueeze", [initial, ints(0)])
        return op("Where", [op("Greater", [done, ints(0)]), last, start])


def _replace(loop: RecurrentLoop, opset: int) -> None:
    """Put the operator of the cell in the place of a loop."""
    nodes, counts = _Nodes(loop), iteration_counts(loop)
    if counts:
        find_sequences(loop)
    sizes = _sizes(loop)
    function = _Function(loop, opset)
    cell = _recognize(function, sizes)
    items, lengths, mask = nodes.in_order(loop.items, counts), None, None
    if loop.mask is not None:
        mask = _Mask(nodes, nodes.changes(loop.mask, counts, function.changes_at, items))
        items, lengths = mask.moved_to_front(items), mask.lengths
    by_role = [loop.states[cell.hidden], *(state for state in loop.states if state is not loop.states[cell.hidden])]
    initial = [nodes.initial(state, items, sizes[1]) for state in by_role]
    inputs = [items, *map(nodes.fixed, cell.arrays(np.dtype(np.float32))), lengths, *initial]
    attributes = {"hidden_size": sizes[1]}
    if cell.resets_after:
        attributes["linear_before_reset"] = 1
    stacked, *finals = nodes.tape.op_multi_out(cell.operator, inputs, attributes, num_outputs=1 + len(by_role))
    if mask is not None:
        stacked = mask.moved_back(stacked, initial[0])
        finals = [mask.last(final, start) for final, start in zip(finals, initial, strict=True)]
    replaced: dict[ir.Value, ir.Value] = {}
    for state, final in zip(by_role, finals, strict=True):
        lead = function.leads[loop.states.index(state)]
        replaced[state.final] = final if lead else nodes.op("Squeeze", [final, nodes.ints(0)])
    for stack, lead in zip(loop.stacks, function.leads[len(by_role) :], strict=True):
        replaced[stack.all] = nodes.stacked(stack, stacked, lead)
    _exchange(loop, nodes, replaced)


def _recognize(function: _Function, sizes: Sequence[int]) -> Cell:
    """The cell of a body, of which a mask may keep the states."""
    if function.mask is None:
        return recognize(function, sizes[0], sizes[1:], function.layers)
    random = np.random.default_rng(0)
    item, *states = (random.standard_normal((POINTS, size)) for size in sizes)
    after = function(item, states).states
    function.changes_at = not all(map(np.array_equal, after, states))
    cell = recognize(function, sizes[0], sizes[1:], function.layers)
    changes = random.random(POINTS) < 0.5
    found, changed = function(item, states, changes), function(item, states).states
    wanted = [np.where(changes[:, None], new, old) for new, old in zip(changed, states, strict=True)]
    pairs = [*zip(found.states, wanted, strict=True), *((each, wanted[cell.hidden]) for each in found.stacked)]
    if not all(map(np.array_equal, *zip(*pairs, strict=True))):
        raise NotACellError("its mask does more than keeping the states")
    return cell


def _sizes(loop: RecurrentLoop) -> list[int]:
    """The sizes of an item and of each state."""
    sequence, mask = loop.items.all, loop.mask
    if _rank(sequence) != 3 or loop.items.axis % 3 == 2 or sequence.dtype != ir.DataType.FLOAT:
        raise NotACellError("its sequence is not float32 with the axes items, batch and values")
    if mask is not None and not _is_of_rows(mask):
        raise NotACellError("its mask has other axes than items and batch")
    if len(loop.states) not in (1, 2):
        raise NotACellError(f"it has {len(loop.states)} states")
    return [_width(sequence), *(_width(state.before, state.initial, state.after) for state in loop.states)]


def _is_of_rows(mask: Items) -> bool:
    """True if a mask has one value for each item of the batch."""
    rank = _rank(mask.all)
    return rank == 2 or (rank == 3 and mask.axis % 3 != 2 and _width(mask.all) == 1)


def _exchange(loop: RecurrentLoop, nodes: _Nodes, replaced: Mapping[ir.Value, ir.Value]) -> None:
    """Put nodes, and the values that they make, in the place of a loop and of the nodes that stack its lists."""
    removed = dict.fromkeys([*(value.producer() for value in replaced), loop.node])
    convenience.replace_nodes_and_values(
        loop.node.graph, loop.node, list(removed), nodes.tape.nodes, list(replaced), list(replaced.values())
    )
