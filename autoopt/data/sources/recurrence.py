"""Recurrent state in data whose items follow each other: outputs of the model for one item are inputs of the next."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from autoopt.data.dataset import Array, DataSet
from autoopt.data.fit import fit, specs_of
from autoopt.model.roles import may_be_same
from autoopt.model.session import make_session
from autoopt.model.tensors import by_name
from autoopt.tuning import KINDS

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

SCAN_SECONDS: Final = 10.0
"""Longest time for running all items, which finds the ends of sequences."""


@dataclass(frozen=True)
class Recurrence:
    """The recurrent state that items of data show."""

    state: Mapping[str, str]
    """Output of the model -> input that takes it with the next item; zero at first, or see `starts`."""
    reset_every: int | None = None
    """Items after which the state is zero again; None if it never is."""
    starts: tuple[int, ...] = ()
    """Items that begin a sequence, with the states in the data; empty if zeros begin all of them."""


def find_recurrence(model: str, data: DataSet) -> Recurrence | None:
    """Run a model on some items and compare its outputs with inputs of the next items.

    None unless outputs of the model are inputs of the next items. The model runs only if some of the data may be
    states, and on all items only if their states begin with other values than zeros.
    """
    names = [name for name, array in data.columns.items() if _may_be_state(array)]
    if not names or len(data.columns) < 2:
        return None
    try:
        session = make_session(model)
        state, has_ends = _returned(session, data, names)
        if not state:
            return None
        if not has_ends:
            recurrence = _from_zeros(state, data)
            if recurrence is not None:
                return recurrence
        return _from_data(session, state, data)
    except Exception:  # The next call that runs the model reports the runtime's own message.
        return None


def _from_zeros(state: Mapping[str, str], data: DataSet) -> Recurrence | None:
    """The recurrence if zeros begin each sequence; None if other values begin the first one."""
    resets = np.flatnonzero(np.all([_is_zero(data.columns[name]) for name in state.values()], axis=0))
    if not len(resets) or resets[0]:
        return None
    if len(resets) == 1:
        return Recurrence(state)
    distances = np.unique(np.diff(resets))
    if len(distances) == 1 and distances[0] > 1 and resets[-1] + distances[0] >= len(data):
        return Recurrence(state, int(distances[0]))
    return _if_sequences(state, resets.tolist(), data)


def _from_data(session: InferenceSession, state: Mapping[str, str], data: DataSet) -> Recurrence | None:
    """The recurrence with the items that do not take over the states of the one before; None if that takes too long."""
    inputs, until = specs_of(session), time.monotonic() + SCAN_SECONDS
    outputs = list(state)
    starts, results = [0], None
    for index, (feed, _) in enumerate(data.feeds(1)):
        item = fit(feed, inputs)
        if results is not None:
            pairs = zip(results, state.values(), strict=True)
            if not all(_is_same(result, item[name]) for result, name in pairs):
                starts.append(index)
        if time.monotonic() > until:
            return None
        results = session.run(outputs, item)
    return _if_sequences(state, starts, data)


def _if_sequences(state: Mapping[str, str], starts: list[int], data: DataSet) -> Recurrence | None:
    """The recurrence, unless most of its sequences are single items."""
    if 2 * len(starts) > len(data):
        return None
    return Recurrence(state, starts=tuple(starts))


def _may_be_state(array: Array) -> bool:
    """True for floats that change from the first item to the second."""
    if array.dtype.kind != "f" or array.ndim < 2 or len(array) < KINDS.state_items:
        return False
    return not np.array_equal(array[0], array[1])


def _is_zero(array: Array) -> Array:
    return np.asarray(~array.reshape(len(array), -1).any(axis=1))


def _returned(session: InferenceSession, data: DataSet, names: Sequence[str]) -> tuple[dict[str, str], bool]:
    """Outputs that return inputs of the next items: the only one for each of these inputs that has any.

    Also true if that does not hold for all items, because some end a sequence.
    """
    inputs = specs_of(session)
    outputs = [output.name for output in session.get_outputs()]
    indices = _compared(data, names)
    hits: Counter[tuple[str, str]] = Counter()
    for count, index in enumerate(indices, start=1):
        (feed, _), (following, _) = data.take(np.array([index, index + 1])).feeds(1)
        results = dict(zip(outputs, session.run(None, fit(feed, inputs)), strict=True))
        expected = fit(following, inputs)
        for name in filter(by_name(inputs).get, names):
            hits.update((output, name) for output in outputs if _is_same(results[output], expected[name]))
        if count >= KINDS.state_first and not hits:
            return {}, False
    returned = [pair for pair, count in hits.items() if count >= KINDS.followed_share * len(indices)]
    sources = Counter(name for _, name in returned)
    state = {output: name for output, name in returned if sources[name] == 1}
    has_ends = any(hits[pair] < len(indices) for pair in state.items())
    return state, has_ends


def _compared(data: DataSet, names: Sequence[str]) -> list[int]:
    """Some items, spread over the data, after which no state is zero."""
    is_zero = np.any([_is_zero(data.columns[name]) for name in names], axis=0)
    followed = np.flatnonzero(~is_zero[1:])
    places = np.linspace(0, len(followed) - 1, min(KINDS.state_compared, len(followed))).astype(int)
    return [int(followed[place]) for place in places]


def _is_same(result: object, expected: Array) -> bool:
    if not isinstance(result, np.ndarray) or not may_be_same(expected.shape, result.shape):
        return False
    scale = float(np.abs(expected).max(initial=0.0))
    return bool(np.abs(result - expected).max(initial=0.0) <= KINDS.state_tolerance * max(scale, KINDS.state_tolerance))
