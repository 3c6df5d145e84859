"""A Loop or Scan that may hold a recurrent cell: its states, its items, and what it returns of each iteration."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from autoopt.model.lazy_imports import convenience, ir, np
from autoopt.passes.cleanup.recurrent import is_zero, source_of
from autoopt.passes.cleanup.rnn_cells import NotACellError

if TYPE_CHECKING:
    from numpy import ndarray


@dataclass(frozen=True)
class State:
    """A value that one iteration hands to the next."""

    initial: ir.Value
    before: ir.Value
    after: ir.Value
    final: ir.Value


@dataclass(frozen=True)
class Stack:
    """A value of each iteration, stacked along an axis."""

    each: ir.Value
    all: ir.Value
    axis: int = 0
    is_backward: bool = False


@dataclass(frozen=True)
class Items:
    """A value from outside of which each iteration reads another item."""

    item: ir.Value
    """The item, as a value of the body."""
    all: ir.Value
    axis: int
    is_backward: bool = False
    index: ir.Value | None = None
    """The value of the body that says which item; None in a Scan."""
    keeps_axis: bool = False
    """True if the item still has the axis of the items, of size 1."""

    @property
    def is_mask(self) -> bool:
        """True if its items are booleans."""
        return bool(self.all.dtype == ir.DataType.BOOL)

    def feed(self, rows: ndarray) -> ndarray:
        """An item of the body that has these rows."""
        return np.expand_dims(rows, self.axis) if self.keeps_axis else rows


@dataclass
class RecurrentLoop:
    """A Loop or Scan."""

    node: ir.Node
    body: ir.Graph
    states: list[State]
    stacks: list[Stack]
    sequences: list[Items] = field(default_factory=list)
    same: dict[ir.Value, ir.Value] = field(default_factory=dict)
    """Values that the body takes and returns as they are, such as weights."""
    numbers: dict[ir.Value, tuple[ir.Value | None, int]] = field(default_factory=dict)
    """Integers that count iterations: where they begin (None: at 0), and what an iteration adds."""
    counted: set[ir.Value] = field(default_factory=set)
    """Those that count from 0 by 1, as the next iteration gets them."""

    @property
    def items(self) -> Items:
        """The sequence of the items that the cell reads."""
        found = [each for each in self.sequences if not each.is_mask]
        if len(found) != 1 or len(self.sequences) > 2:
            raise NotACellError(f"it reads {len(self.sequences)} sequences")
        return found[0]

    @property
    def mask(self) -> Items | None:
        """The sequence of booleans that says which items change the states."""
        return next((each for each in self.sequences if each.is_mask), None)

    def outer(self, value: ir.Value) -> ir.Value:
        """The value from outside that a value of the body always is, or the value itself."""
        value = source_of(value)
        return self.same.get(value, value)

    def is_inside(self, value: ir.Value) -> bool:
        """Tell if the body computes a value or takes it."""
        return value.graph is self.body


def read_loop(node: ir.Node) -> RecurrentLoop:
    """The parts of a Loop or Scan, with its weights and numbers told from its states."""
    body = node.attributes["body"].as_graph()
    if node.op_type == "Scan":
        count = node.attributes.get_int("num_scan_inputs")
        carried, before, after = len(node.inputs) - count, list(body.inputs), list(body.outputs)
    else:
        carried, before, after = len(node.inputs) - 2, list(body.inputs[2:]), list(body.outputs[1:])
    states = map(State, node.inputs[-len(before) :], before[:carried], after, node.outputs)
    loop = RecurrentLoop(node, body, list(states), [])
    axes = node.attributes.get_ints("scan_output_axes", [0] * len(after))
    directions = node.attributes.get_ints("scan_output_directions", [0] * len(after))
    loop.stacks += map(Stack, after[carried:], node.outputs[carried:], axes, map(bool, directions))
    if node.op_type == "Scan":
        axes = node.attributes.get_ints("scan_input_axes", [0] * count)
        directions = node.attributes.get_ints("scan_input_directions", [0] * count)
        loop.sequences += map(Items, body.inputs[-count:], node.inputs[-count:], axes, map(bool, directions))
    else:
        loop.numbers[body.inputs[0]] = (None, 1)
    _settle(loop)
    return loop


def _settle(loop: RecurrentLoop) -> None:
    """Take what is no vector from the states: weights, numbers, and lists to which each iteration adds a vector."""
    integers = (ir.DataType.INT32, ir.DataType.INT64)
    for state in list(loop.states):
        after = loop.outer(state.after)
        node = after.producer()
        if after is state.before:
            loop.same[state.before] = state.initial
            state.final.replace_all_uses_with(state.initial, replace_graph_outputs=True)
        elif node is not None and node.op_type == "SequenceInsert" and node.inputs[0] is state.before:
            loop.stacks += _stacks_of_list(state, node)
        elif node is not None and node.op_type == "Add" and state.before.dtype in integers:
            _read_number(loop, state, node)
        else:
            continue
        loop.states.remove(state)


def _stacks_of_list(state: State, insert: ir.Node) -> list[Stack]:
    """The stacks that are made after the loop of a list to which each iteration appends a value."""
    readers = [use.node for use in state.final.uses()]
    start = state.initial.producer()
    appends_to_new = start is not None and start.op_type == "SequenceEmpty" and len(insert.inputs) == 2
    is_stacked = not state.final.is_graph_output() and all(each.attributes.get_int("new_axis", 0) for each in readers)
    if not appends_to_new or not is_stacked:
        raise NotACellError("it returns a list that is not stacked after the loop")
    each = insert.inputs[1]
    return [Stack(each, reader.outputs[0], reader.attributes.get_int("axis")) for reader in readers]


def _read_number(loop: RecurrentLoop, state: State, add: ir.Node) -> None:
    """Record an integer to which each iteration adds a fixed number."""
    step = fixed_value(add.inputs[1])
    is_read = bool(state.final.uses()) or state.final.is_graph_output()
    if add.inputs[0] is not state.before or step is None or step.size != 1 or is_read:
        raise NotACellError("it counts in another way than by adding a fixed number")
    loop.numbers[state.before] = (state.initial, int(step.reshape(())))
    start = fixed_value(state.initial)
    if step == 1 and start is not None and not start.any():
        loop.counted.add(add.outputs[0])


def fixed_value(value: ir.Value | None) -> ndarray | None:
    """The value that is the same in each call, if it is one."""
    tensor = None if value is None or value.is_graph_input() else convenience.get_const_tensor(value)
    return None if tensor is None else tensor.numpy()


def iteration_counts(loop: RecurrentLoop) -> list[ir.Value]:
    """The smallest of these values is the number of iterations; empty for a Scan."""
    if loop.node.op_type == "Scan":
        return []
    trips, begins = loop.node.inputs[:2]
    limits = _limits(loop)
    if begins is not None and not _is_always_true(begins):
        test = begins.producer()
        if test is None or test.op_type != "Less" or test.inputs[1] not in limits or not is_zero(test.inputs[0]):
            raise NotACellError("it may have no iteration")
    counts = limits if trips is None else [trips, *limits]
    if not counts:
        raise NotACellError("it may have no iteration")
    return counts


def _limits(loop: RecurrentLoop) -> list[ir.Value]:
    """The values from outside that the number of iterations stays below, by the condition of the body."""
    limits = []
    conditions = [loop.outer(loop.body.outputs[0])]
    for condition in conditions:
        if condition is loop.body.inputs[1] or _is_always_true(condition):
            continue
        node = condition.producer()
        if node is not None and node.op_type == "And":
            conditions += [loop.outer(each) for each in node.inputs]
            continue
        if node is None or node.op_type != "Less" or node.inputs[0] not in loop.counted:
            raise NotACellError("it may end before the last item")
        limit = loop.outer(node.inputs[1])
        if loop.is_inside(limit):
            raise NotACellError("it may end before the last item")
        limits.append(limit)
    return limits


def _is_always_true(condition: ir.Value) -> bool:
    """Tell if a condition is true in each call."""
    fixed = fixed_value(condition)
    return fixed is not None and bool(fixed.all())


def find_sequences(loop: RecurrentLoop) -> None:
    """Find the Gathers of a Loop that read an item of a sequence from outside."""
    for node in loop.body:
        if node.op_type != "Gather":
            continue
        sequence, index = (loop.outer(each) for each in node.inputs)
        if loop.is_inside(index) and not loop.is_inside(sequence):
            maker = index.producer()
            keeps_axis = maker is not None and maker.op_type in ("Unsqueeze", "Reshape")
            axis = node.attributes.get_int("axis", 0)
            loop.sequences.append(Items(node.outputs[0], sequence, axis, index=index, keeps_axis=keeps_axis))
