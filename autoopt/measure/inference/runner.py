"""Running a model over a data set: batches where the model allows them, state fed back, outputs item by item."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from autoopt.data.dataset import Array, DataSet, Feed
from autoopt.data.fit import InputSpec, batch_limit, fit, specs_of
from autoopt.errors import InputError
from autoopt.measure.request import Model, Request
from autoopt.model.session import make_session

Item: TypeAlias = list[Any]
"""The outputs of one item, one value per output; an axis of length 1 stands for the batch where the model has one."""

LARGEST_BATCH = 32
BATCH_BYTES = 32 << 20


@dataclass
class Running:
    """A session of a model with what is needed to feed it."""

    session: Any
    inputs: tuple[InputSpec, ...]
    outputs: tuple[str, ...]
    state: Mapping[str, str] = field(default_factory=dict)
    reset_every: int | None = None
    _fed_back: Feed = field(default_factory=dict)

    @staticmethod
    def start(model: Model, request: Request) -> Running:
        """A new session.

        Raises:
            InputError: `state` names an input or output that the model does not have, or two of different shapes.
            Exception: whatever onnxruntime refuses the model with.
        """
        session = make_session(model.path, model.session_options, request.execution_provider, request.threads)
        inputs, outputs = specs_of(session), tuple(o.name for o in session.get_outputs())
        config = request.data
        state = dict(request.settings.get("state") or (config.state if config else {}))
        for output, target in state.items():
            if output not in outputs or target not in {i.name for i in inputs}:
                raise InputError(f"state {output!r} -> {target!r} is not an output and an input of the model")
            made = next(o.shape for o in session.get_outputs() if o.name == output)
            taken = next(i.shape for i in inputs if i.name == target)
            if not _alike(made, taken):
                raise InputError(f"state {output!r} -> {target!r}: made as {made}, but taken as {list(taken or ())}")
        reset = request.settings.get("reset_every") or (config.reset_every if config else None)
        return Running(session, inputs, outputs, state, reset)

    def feed(self, feed: Mapping[str, Any]) -> Feed:
        """A feed fitted to the inputs, with the recurrent state in it (zero at first)."""
        given = self.state.values()
        fitted = fit({n: v for n, v in feed.items() if n not in given} if given else feed, self.inputs, given)
        for spec in self.inputs:
            if spec.name in given:
                fitted[spec.name] = self._fed_back.get(spec.name, _zero(spec))
        return fitted

    def run(self, feed: Mapping[str, Any]) -> Item:
        """One inference; remembers the state for the next."""
        outputs: Item = self.session.run(None, self.feed(feed))
        if self.state:
            by_name = dict(zip(self.outputs, outputs, strict=True))
            self._fed_back = {target: by_name[output] for output, target in self.state.items()}
        return outputs

    def reset(self) -> None:
        """Forget the recurrent state."""
        self._fed_back = {}

    def items(self, data: DataSet, limit: int | None = None, batch_size: int = 0) -> Iterator[Item]:
        """The outputs of each item of `data`, in order.

        Items go in batches where the model's first dimension is free and a batch of two gives what two single items
        give (a model that mixes items, or whose quantisation looks at the whole batch, is run item by item).
        """
        self.reset()
        size = self.batch_size(data, batch_size)
        for index, (feed, _) in enumerate(data.feeds(size, limit)):
            if self.reset_every and index % self.reset_every == 0:
                self.reset()
            if size == 1:
                yield self.run(feed)
            else:
                count = _length(feed, data)
                yield from _split(self.run(_padded(feed, data, size) if self._fixed else feed), count)

    @property
    def _fixed(self) -> bool:
        return any(i.shape and isinstance(i.shape[0], int) for i in self.inputs)

    def batch_size(self, data: DataSet, wanted: int = 0) -> int:
        """Items per inference: `wanted` (0: as many as is sensible), as far as the model allows."""
        if self.state or data.uneven or len(data) == 1:
            return 1
        limit = batch_limit(self.inputs, data.columns)
        if limit is not None:
            return limit
        per_item = sum(a.nbytes // len(data) for a in data.columns.values() if a.ndim)
        size = min(wanted or LARGEST_BATCH, len(data), max(1, BATCH_BYTES // max(1, per_item)))
        return size if size == 1 or self._batch_is_items(data) else 1

    def _batch_is_items(self, data: DataSet) -> bool:
        try:
            (pair, _), *_ = data.feeds(2, 2)
            together = _split(self.run(pair), 2)
            apart = [self.run(feed) for feed, _ in data.feeds(1, 2)]
        except Exception:  # a model that does not take two items: one at a time then shows its own error
            return False
        return all(_close(a, b) for x, y in zip(together, apart, strict=True) for a, b in zip(x, y, strict=True))


def _alike(one: Sequence[Any] | None, two: Sequence[Any] | None) -> bool:
    """Whether two shapes can be equal, as far as they are known."""
    if not one or not two:
        return True
    numbers = ((a, b) for a, b in zip(one, two, strict=False) if isinstance(a, int) and isinstance(b, int))
    return len(one) == len(two) and all(a == b for a, b in numbers)


def _zero(spec: InputSpec) -> Array:
    shape = [d if isinstance(d, int) else 1 for d in spec.shape or ()]
    return np.zeros(shape, spec.dtype or np.float32)


def _length(feed: Feed, data: DataSet) -> int:
    return next(len(feed[n]) for n, a in data.columns.items() if a.ndim)


def _padded(feed: Feed, data: DataSet, size: int) -> Feed:
    missing = size - _length(feed, data)
    if missing == 0:
        return feed
    return {
        n: np.concatenate([a, np.repeat(a[-1:], missing, 0)]) if data.columns[n].ndim else a for n, a in feed.items()
    }


def _split(outputs: Sequence[Any], count: int) -> list[Item]:
    for value in outputs:
        if isinstance(value, np.ndarray) and (value.ndim == 0 or len(value) < count):
            raise InputError(f"an output of shape {value.shape} cannot be told apart into {count} items")
    return [[v[i : i + 1] for v in outputs] for i in range(count)]


def _close(a: Any, b: Any) -> bool:
    if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray) or a.dtype.kind not in "fiub":
        return bool(np.array_equal(np.asarray(a, object), np.asarray(b, object)))
    if a.shape != b.shape:
        return False
    scale = float(np.max(np.abs(b.astype(np.float64)), initial=0.0))
    return bool(np.allclose(a.astype(np.float64), b.astype(np.float64), rtol=1e-3, atol=1e-4 * scale + 1e-9))


def stack(items: Sequence[Any]) -> Array:
    """One output of all items as one array with items along axis 0.

    Raises:
        InputError: the items' shapes differ.
    """
    arrays = [np.asarray(i) for i in items]
    if len({a.shape for a in arrays}) > 1:
        raise InputError("the outputs of the items differ in shape, so there is no one array of them")
    if arrays[0].ndim and arrays[0].shape[0] == 1:
        return np.concatenate(arrays)
    return np.stack(arrays)


def plain(value: Any) -> Any:
    """One output as numbers where it can be: maps, one an item, become an array with a column for each key."""
    if isinstance(value, list) and value and all(isinstance(v, dict) and v.keys() == value[0].keys() for v in value):
        return np.array([list(v.values()) for v in value])
    return value
