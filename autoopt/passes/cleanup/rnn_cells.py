"""The cell of a GRU, LSTM or RNN, recognized by the values of a function, however its graph was written.

The weights come from the arguments of its sigmoids and tanhs at unit vectors, in double precision. Then the operator's
formula must give the function's values at random points: as both are analytic, they are then equal everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import TYPE_CHECKING, Final, TypeAlias

from autoopt.model.lazy_imports import np

if TYPE_CHECKING:
    from numpy import ndarray

POINTS: Final = 16
"""Random points at which a formula is compared with the function."""
TOLERANCE: Final = 1e-9
"""The largest difference at them; double precision leaves less."""


class NotACellError(Exception):
    """The function is no cell of a GRU, LSTM or RNN. The text says why."""


@dataclass(frozen=True)
class Values:
    """Results of the function for some rows of inputs: all of shape (rows, columns)."""

    sigmoids: ndarray
    """Arguments of all sigmoids, side by side."""
    tanhs: list[ndarray]
    """Arguments of each tanh."""
    states: list[ndarray]
    stacked: list[ndarray]
    """Values that each iteration returns beside its states."""


Function: TypeAlias = "Callable[[ndarray, list[ndarray]], Values]"
"""The values of a body for items and states, in double precision."""


@dataclass(frozen=True)
class Gate:
    """Weights of a gate: `item @ of_item + hidden @ of_hidden + bias`, and the bias that the reset of a GRU scales."""

    of_item: ndarray
    of_hidden: ndarray
    bias: ndarray
    reset_bias: ndarray | None = None

    def argument(self, item: ndarray, hidden: ndarray) -> ndarray:
        """The argument of its activation."""
        return np.asarray(item @ self.of_item + hidden @ self.of_hidden + self.bias)

    def __neg__(self) -> Gate:
        return Gate(-self.of_item, -self.of_hidden, -self.bias)


@dataclass(frozen=True)
class Cell:
    """A recognized cell: the operator, and its gates in the operator's order."""

    operator: str
    gates: tuple[Gate, ...]
    hidden: int = 0
    """Index of the hidden state; the other one is the cell of an LSTM."""
    resets_after: bool = False
    """The reset of a GRU comes after the product: the attribute `linear_before_reset`."""

    @staticmethod
    def of(operator: str, arrays: Sequence[ndarray], *, resets_after: bool) -> Cell:
        """The cell of a layer with these inputs W, R and, if it has them, B."""
        (of_item,), (of_hidden,), *given = arrays
        count = len(of_hidden) // of_hidden.shape[1]
        biases = given[0][0] if given else np.zeros(2 * len(of_hidden))
        parts = [np.split(each, count) for each in (of_item, of_hidden, *np.split(biases, 2))]
        gates = [Gate(w.T, r.T, b + c) for w, r, b, c in zip(*parts, strict=True)]
        if resets_after:
            *_, (w, r, b, c) = zip(*parts, strict=True)
            gates[-1] = Gate(w.T, r.T, b, c)
        return Cell(operator, tuple(gates), resets_after=resets_after)

    def next_states(self, item: ndarray, states: Sequence[ndarray]) -> list[ndarray]:
        """The next states by the operator's formula, in the order of the function."""
        hidden, (first, *others) = states[self.hidden], self.gates
        if self.operator == "RNN":
            return [np.tanh(first.argument(item, hidden))]
        if self.operator == "GRU":
            reset, new = others
            update, factor = (_sigmoid(gate.argument(item, hidden)) for gate in (first, reset))
            argument = new.argument(item, factor * hidden)
            if self.resets_after:
                argument = item @ new.of_item + new.bias + factor * (hidden @ new.of_hidden + new.reset_bias)
            return [(1 - update) * np.tanh(argument) + update * hidden]
        enter, output, forget = (_sigmoid(gate.argument(item, hidden)) for gate in self.gates[:3])
        cell = forget * states[1 - self.hidden] + enter * np.tanh(self.gates[3].argument(item, hidden))
        after = [output * np.tanh(cell), cell]
        return after if self.hidden == 0 else after[::-1]

    def arrays(self, dtype: np.dtype) -> list[ndarray]:
        """The inputs W, R and B of the operator, in one direction."""
        biases = [gate.bias for gate in self.gates]
        biases += [gate.reset_bias if gate.reset_bias is not None else 0 * gate.bias for gate in self.gates]
        of_item = np.concatenate([gate.of_item.T for gate in self.gates])
        of_hidden = np.concatenate([gate.of_hidden.T for gate in self.gates])
        return [each[None].astype(dtype) for each in (of_item, of_hidden, np.concatenate(biases))]


def recognize(function: Function, items: int, widths: Sequence[int], layers: Sequence[Cell] = ()) -> Cell:
    """Recognize the cell that a function of an item of so many values, and states of these widths, computes.

    It may be one of the layers, which the function holds.

    Raises:
        NotACellError: It is none.
    """
    random = np.random.default_rng(0)
    item, states = random.standard_normal((POINTS, items)), [random.standard_normal((POINTS, size)) for size in widths]
    wanted = function(item, states)
    find = _recurrent if len(widths) == 1 else _lstm
    if len(set(widths)) == 1:
        swapped = [replace(layer, hidden=1) for layer in layers if len(widths) == 2]
        for cell in [*layers, *swapped] or find(function, items, widths[0]):
            found = cell.next_states(item, states)
            pairs = [*zip(found, wanted.states, strict=True), *((found[cell.hidden], each) for each in wanted.stacked)]
            if all(a.shape == b.shape and np.allclose(a, b, rtol=0, atol=TOLERANCE) for a, b in pairs):
                return cell
    raise NotACellError(f"its {len(widths)} states are computed in another way")


def _recurrent(function: Function, items: int, width: int) -> Iterator[Cell]:
    """All cells of a GRU or RNN that the function may compute."""
    units = _at_units(function, items, width, hidden=0, states=1)
    if len(units.tanhs) != 1 or units.tanhs[0].shape[1] != width:
        return
    if units.sigmoids.shape[1] == 0:
        yield Cell("RNN", (_affine(units.tanhs[0], items, width),))
    if units.sigmoids.shape[1] == 2 * width:
        for update, reset in permutations(np.split(units.sigmoids, 2, axis=1)):
            gate = _affine(update, items, width)
            for resets_after, new in enumerate(_new_gates(units.tanhs[0], _sigmoid(reset), items, width)):
                for first in (gate, -gate):  # the sigmoid of the other sign is 1 minus the sigmoid
                    yield Cell("GRU", (first, _affine(reset, items, width), new), resets_after=bool(resets_after))


def _new_gates(argument: ndarray, reset: ndarray, items: int, width: int) -> tuple[Gate, Gate]:
    """The gate of a GRU's new state with the reset before the product, and after it."""
    (zero, of_items, plus, minus), resets = _parts(argument, items, width), _parts(reset, items, width)
    before = Gate(of_items - zero, (plus - zero) / np.diagonal(resets[2])[:, None], zero[0])
    # With the reset r, the argument is b + r * (h @ R + c): two equations for b and c at the unit vectors h and -h.
    slopes = 1 / resets[2] + 1 / resets[3] - 2 / resets[0]
    sums = plus / resets[2] + minus / resets[3] - 2 * zero / resets[0]
    bias = (sums * slopes).sum(axis=0) / np.maximum((slopes**2).sum(axis=0), np.finfo(float).tiny)
    reset_bias = (zero[0] - bias) / resets[0][0]
    of_hidden = (plus - bias) / resets[2] - reset_bias
    after = Gate(of_items - bias - resets[1] * reset_bias, of_hidden, bias, reset_bias)
    return before, after


def _lstm(function: Function, items: int, width: int) -> Iterator[Cell]:
    """All cells of an LSTM that the function may compute."""
    for hidden in (0, 1):
        units = _at_units(function, items, width, hidden, states=2)
        if units.sigmoids.shape[1] != 3 * width or len(units.tanhs) != 2:
            return
        gates = [_affine(part, items, width) for part in np.split(units.sigmoids, 3, axis=1)]
        for new in units.tanhs:
            for ordered in permutations(gates):
                if new.shape[1] == width:
                    yield Cell("LSTM", (*ordered, _affine(new, items, width)), hidden)


def _at_units(function: Function, items: int, width: int, hidden: int, states: int) -> Values:
    """The values at zero, at each unit vector of the item, and at each of the hidden state and its opposite."""
    rows = 1 + items + 2 * width
    item, vectors = np.zeros((rows, items)), [np.zeros((rows, width)) for _ in range(states)]
    item[1 : 1 + items] = np.eye(items)
    vectors[hidden][1 + items :] = np.concatenate([np.eye(width), -np.eye(width)])
    return function(item, vectors)


def _parts(values: ndarray, items: int, width: int) -> list[ndarray]:
    return np.split(values, np.cumsum([1, items, width]))


def _affine(argument: ndarray, items: int, width: int) -> Gate:
    zero, of_items, plus, _ = _parts(argument, items, width)
    return Gate(of_items - zero, plus - zero, zero[0])


def _sigmoid(values: ndarray) -> ndarray:
    return np.asarray(1 / (1 + np.exp(-values)))
