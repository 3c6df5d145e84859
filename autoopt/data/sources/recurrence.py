"""Recurrent state in data whose items follow each other: outputs of the model for one item are inputs of the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from autoopt.data.dataset import Array, DataSet
from autoopt.data.fit import fit, has_shape, specs_of
from autoopt.model.session import make_session
from autoopt.model.tensors import by_name

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

MIN_ITEMS: Final = 4
"""Fewer items show no recurrence."""
COMPARED_ITEMS: Final = 8
"""Items whose outputs are compared with the inputs of the next ones."""
TOLERANCE: Final = 1e-3
"""Difference, relative to the largest value, between a state and one that another runtime recorded."""


@dataclass(frozen=True)
class Recurrence:
    """The recurrent state that items of data show."""

    state: Mapping[str, str]
    """Output of the model -> input that takes it with the next item; zero at first."""
    reset_every: int | None
    """Items after which the state is zero again; None if it never is."""


def find_recurrence(model: str, data: DataSet) -> Recurrence | None:
    """Run a model on some items and compare its outputs with inputs of the next items.

    None unless outputs of the model are inputs of the next items, and these states begin with zeros and are zero again
    after equal numbers of items or never. The model runs only if some of the data may be states.
    """
    names = [name for name, array in data.columns.items() if _may_be_state(array)]
    if not names:
        return None
    try:
        state = _returned(make_session(model), data, names)
    except Exception:  # The next call that runs the model reports the runtime's own message.
        return None
    if not state:
        return None
    resets = np.flatnonzero(np.all([_is_zero(data.columns[name]) for name in state.values()], axis=0))
    if len(resets) == 1:
        return Recurrence(state, None)
    distances = np.unique(np.diff(resets))
    if len(distances) > 1 or distances[0] == 1 or resets[-1] + distances[0] < len(data):
        return None
    return Recurrence(state, int(distances[0]))


def _may_be_state(array: Array) -> bool:
    """True for floats of which the first item is all zeros, and the second one is not."""
    if array.dtype.kind != "f" or array.ndim < 2 or len(array) < MIN_ITEMS:
        return False
    return not array[0].any() and bool(array[1].any())


def _is_zero(array: Array) -> Array:
    return np.asarray(~array.reshape(len(array), -1).any(axis=1))


def _returned(session: InferenceSession, data: DataSet, names: Sequence[str]) -> dict[str, str]:
    """Outputs that return inputs of the next items: the only one for each of these inputs that has any."""
    inputs = specs_of(session)
    outputs = [output.name for output in session.get_outputs()]
    matches = {name: set(outputs) for name in names if name in by_name(inputs)}
    for index in _compared(data, names):
        (feed, _), (following, _) = data.take(np.array([index, index + 1])).feeds(1)
        results = dict(zip(outputs, session.run(None, fit(feed, inputs)), strict=True))
        expected = fit(following, inputs)
        for name, candidates in matches.items():
            matches[name] = {output for output in candidates if _is_same(results[output], expected[name])}
    return {candidates.pop(): name for name, candidates in matches.items() if len(candidates) == 1}


def _compared(data: DataSet, names: Sequence[str]) -> list[int]:
    """Some items, spread over the data, after which no state is zero."""
    is_zero = np.any([_is_zero(data.columns[name]) for name in names], axis=0)
    followed = np.flatnonzero(~is_zero[1:])
    places = np.linspace(0, len(followed) - 1, min(COMPARED_ITEMS, len(followed))).astype(int)
    return [int(followed[place]) for place in places]


def _is_same(result: object, expected: Array) -> bool:
    if not isinstance(result, np.ndarray) or not has_shape(expected.shape, result.shape):
        return False
    scale = float(np.abs(expected).max(initial=0.0))
    return bool(np.abs(result - expected).max(initial=0.0) <= TOLERANCE * max(scale, TOLERANCE))
