"""Running a model over data: which items, in which batches, with which recurrent state, output by item."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from autoopt.data.dataset import DataSet, Feed
from autoopt.data.digest import check_unchanged
from autoopt.data.fit import InputSpec, batch_limit, fit, specs_of
from autoopt.data.opening import open_data
from autoopt.errors import InputError, one_line
from autoopt.json_codec import JsonValue
from autoopt.measure.request import MeasureRequest
from autoopt.model.candidate import digest_json
from autoopt.model.model_file import ModelFile
from autoopt.model.random_nodes import seeded
from autoopt.model.roles import Dimension, Role, input_roles, may_be_same
from autoopt.model.session import NO_PREPACKING, make_session
from autoopt.model.split import is_split
from autoopt.model.tensors import by_name
from autoopt.tuning import KINDS

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

Item: TypeAlias = "list[object]"
"""The outputs of one item, one value per output. Arrays keep a batch axis of length 1 if the model has one."""
SPINNING = {"session.intra_op.spin_duration_us": "1000"}
"""Time for which the threads of an idle session wait for work in a busy loop, as a session config entry.

Measurements keep several sessions in one process and let them take turns. The runtime's own time is so long that the
threads of the others occupy the cores: on two cores, a model on two threads took 0.74 ms in a session alone, 1.23 ms
(its time on one thread) in turns with seven others, and 0.75 ms with this entry. Alone, it changes nothing.
"""
NO_SPINNING = {"session.intra_op.allow_spinning": "0"}
"""The same for sessions that nobody times: busy loops only take the cores from other workers."""


@dataclass
class ModelRunner:
    """A session of a model and what is needed to feed it. Not thread-safe: it carries the recurrent state."""

    session: InferenceSession
    inputs: tuple[InputSpec, ...]
    outputs: tuple[str, ...]
    roles: Mapping[str, Role]
    """Roles of the inputs, with those that the user gives."""
    state: Mapping[str, str] = field(default_factory=dict)
    """Recurrent state: output name -> name of the input that receives it in the next inference."""
    reset_every: int | None = None
    """Items after which the state starts from zero again."""
    starts: frozenset[int] = frozenset()
    """Items that begin with the state that the data hold for them."""
    reopen: Callable[[], InferenceSession] | None = None
    """For a model that draws random numbers: makes a session that begins with the same numbers."""
    _zero_state: Feed = field(default_factory=dict)
    _fed_back: Feed = field(default_factory=dict)

    @staticmethod
    def open(
        model: ModelFile,
        request: MeasureRequest,
        *,
        timed: bool = True,
        packs_weights: bool = True,
        profile_prefix: str = "",
    ) -> ModelRunner:
        """Make a session of a model on the request's target.

        If the session is not `timed`, only the outputs matter, and it leaves cores to other workers. Unless it
        `packs_weights`, it is not timed either and makes no copy of the weights in the layout of its kernels: for one
        inference or none, that takes less time and memory (1 instead of 8 s for 4.4 GB). With a `profile_prefix`, the
        session is profiled into a file of that prefix.

        Raises:
            InputError: `state` names an input or output that the model does not have, or two of different shapes.
            Exception: whatever onnxruntime raises when it refuses the model.
        """
        target, settings, config = request.target, request.settings, request.data
        graph: bytes | None = None
        threads, script = target.threads, request.user_script
        if timed and packs_weights:
            options = resting(model.session_options, SPINNING)
            session = make_session(
                model.path, options, target.execution_provider, threads, profile_prefix=profile_prefix, script=script
            )
        else:
            entries = NO_SPINNING if packs_weights else {**NO_SPINNING, NO_PREPACKING: "1"}
            options = resting(model.session_options, entries)
            is_small = _is_small(Path(model.path))
            if not threads and is_small:
                threads = 1
            graph = seeded(Path(model.path)) if is_small else None
            place = (model.path, options, target.execution_provider, threads)
            reopen = partial(make_session, *place, timed=False, script=script, graph=graph)
            session = reopen()
        inputs = specs_of(session)
        outputs = tuple(output.name for output in session.get_outputs())
        runner = ModelRunner(session, inputs, outputs, input_roles(inputs, given=settings.roles))
        if graph is not None:
            runner.reopen = reopen
        runner.state = request.states
        runner.reset_every = settings.reset_every
        if config is not None and not runner.reset_every:
            runner.reset_every = config.reset_every
        if config is not None and not settings.state:
            runner.starts = frozenset(config.starts or ())
        runner._prepare_state()
        return runner

    def _prepare_state(self) -> None:
        """Check the recurrent state and set it to zero."""
        specs = by_name(self.inputs)
        output_shapes = {output.name: output.shape for output in self.session.get_outputs()}
        for output, target in self.state.items():
            text = f"state {output!r} -> {target!r}"
            if output not in output_shapes or target not in specs:
                raise InputError(f"{text} is not an output and an input of the model")
            before, after = output_shapes[output], specs[target].shape
            if before and after and not may_be_same(before, after):
                raise InputError(f"{text}: the output has shape {before}, the input {list(after)}")
            self._zero_state[target] = specs[target].zeros()

    def feed(self, feed: Mapping[str, np.ndarray]) -> Feed:
        """Fit a feed to the model's inputs and add the recurrent state (zero at first)."""
        data_inputs = {name: value for name, value in feed.items() if name not in self._zero_state}
        return {**fit(data_inputs, self.inputs, self._zero_state, self.roles), **self._zero_state, **self._fed_back}

    def run(self, feed: Mapping[str, np.ndarray]) -> Item:
        """Run one inference and remember the state for the next."""
        if self.reopen is not None:  # each item gets the same draws from the source and from its candidates
            self.session = self.reopen()
        outputs: Item = self.session.run(None, self.feed(feed))
        if self.state:
            by_name = dict(zip(self.outputs, outputs, strict=True))
            self._fed_back = {target: np.asarray(by_name[output]) for output, target in self.state.items()}
        return outputs

    def reset(self) -> None:
        """Set the recurrent state back to zero."""
        self._fed_back = {}

    def begin(self, feed: Mapping[str, np.ndarray]) -> None:
        """Set the recurrent state to what the data hold for an item."""
        states = [spec for spec in self.inputs if spec.name in self._zero_state]
        self._fed_back = fit(feed, states)

    def items(self, data: DataSet, limit: int | None = None, batch_size: int = 0) -> Iterator[Item]:
        """Yield the outputs of each item of `data`, in order.

        Items go in batches if the model's first dimension is free and a batch of some gives the same as single items.
        A model that mixes items, or whose quantization looks at the whole batch, runs item by item.
        """
        self.reset()
        size = self.batch_size(data, batch_size)
        has_fixed_batch = any(spec.shape and isinstance(spec.shape[0], int) for spec in self.inputs)
        for index, (feed, _) in enumerate(data.feeds(size, limit)):
            if self.reset_every and index % self.reset_every == 0:
                self.reset()
            if index in self.starts:
                self.begin(feed)
            if size == 1:
                yield self.run(feed)
                continue
            columns = [name for name, column in data.columns.items() if column.ndim]
            count = len(feed[columns[0]])
            if has_fixed_batch and count < size:
                # The last item fills the batch up.
                rows = np.minimum(np.arange(size), count - 1)
                feed = {name: array[rows] if name in columns else array for name, array in feed.items()}
            yield from _split(self.run(feed), count)

    def batch_size(self, data: DataSet, wanted_size: int = 0) -> int:
        """Choose the items per inference: `wanted_size` (0: as many as is sensible), if the model allows it."""
        if self.state or data.uneven or len(data) == 1:
            return 1
        limit = batch_limit(self.inputs, data.columns)
        if limit is not None:
            return limit
        item_bytes = sum(column.nbytes // len(data) for column in data.columns.values() if column.ndim)
        size = min(wanted_size or KINDS.largest_batch, len(data), max(1, KINDS.batch_bytes // max(1, item_bytes)))
        compared = min(size, KINDS.batch_compared)
        # The comparison runs these items twice, which must not take longer than the items by themselves.
        if size > 1 and (wanted_size or len(data) > 2 * compared) and self._batch_equals_items(data, compared):
            return size
        return 1

    def _batch_equals_items(self, data: DataSet, count: int) -> bool:
        compared = data.take(np.linspace(0, len(data) - 1, count).astype(int))
        try:
            batched = _split(self.run(next(compared.feeds(count))[0]), count)
            single = [self.run(feed) for feed, _ in compared.feeds(1)]
        except Exception:  # The model does not take two items. One at a time then shows the model's own error.
            return False
        pairs = [pair for items in zip(batched, single, strict=True) for pair in zip(*items, strict=True)]
        return all(same_values(*pair, relative=KINDS.batch_error) for pair in pairs)


def _split(outputs: Sequence[object], count: int) -> list[Item]:
    """Split the outputs of a batch into items."""
    items: list[Item] = [[] for _ in range(count)]
    for value in outputs:
        if isinstance(value, np.ndarray) and (value.ndim == 0 or len(value) < count):
            raise InputError(f"an output of shape {value.shape} cannot be split into {count} items")
        for index, item in enumerate(items):
            item.append(value[index : index + 1])  # type: ignore[index]  # an array, or a list with one value per item
    return items


def same_values(one: object, other: object, relative: float = 0.0) -> bool:
    """True if two outputs are the same up to rounding; with a `relative` error, integers are compared like floats."""
    one, other = plain(one), plain(other)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(same_values(*pair, relative) for pair in zip(one, other, strict=True))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same_values(one[key], other[key], relative) for key in one)
    return _same_arrays(np.asarray(one), np.asarray(other), relative)


def _same_arrays(array: np.ndarray, other_array: np.ndarray, relative: float) -> bool:
    if array.shape != other_array.shape:
        return False
    compared = "fiub" if relative else "f"
    if array.dtype.kind not in compared or other_array.dtype.kind not in compared:
        return bool(np.all(array == other_array))
    values, others = array.astype(np.float64), other_array.astype(np.float64)
    scale = float(np.max(np.abs(others[np.isfinite(others)]), initial=0.0))
    return bool(np.allclose(values, others, rtol=relative, atol=KINDS.rounding * scale, equal_nan=True))


def plain(value: object) -> object:
    """Convert an output to numbers if possible: maps, one per item, become an array with a column for each key."""
    if not isinstance(value, list) or not value or not isinstance(value[0], dict):
        return value
    if any(not isinstance(row, dict) or row.keys() != value[0].keys() for row in value):
        return value
    return np.array([list(row.values()) for row in value])


def _is_small(model: Path) -> bool:
    """True for a small model; external data lie in the same folder. Only large ones are split."""
    files = [file for file in model.parent.iterdir() if file.is_file()]
    return not is_split(model) and sum(file.stat().st_size for file in files) <= KINDS.small_model


def resting(options: Mapping[str, JsonValue], added: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Session options with these configuration entries, such as those on how threads wait; their own entries stay."""
    entries = options.get("config") or {}
    assert isinstance(entries, Mapping), "the options have been checked"
    return {**options, "config": {**added, **entries}}


CACHED_DATA_SETS = 2
"""A trial's meters use the same data one after the other, so few data sets suffice."""
_cache: dict[str, DataSet] = {}


def evaluation_data(request: MeasureRequest) -> DataSet:
    """Open the request's data, or make synthetic items for its source model (the candidate if there is no source).

    Raises:
        InputError: the data cannot be read or change meanwhile, or inputs of this kind cannot be made up.
    """
    model = request.source or request.candidate
    settings = request.settings
    digest_before = request.data_key
    key = digest_json([digest_before, model.path, model.digest, settings.made_up])
    if key in _cache:
        return _cache[key]
    if request.data is not None:
        data = open_data(request.data, model.path, settings.roles)
        check_unchanged(request.data, digest_before)
    else:
        made_up = {"load_dataset": {"type": "synthetic", "params": settings.made_up}}
        data = open_data(made_up, model.path)
    while len(_cache) >= CACHED_DATA_SETS:
        del _cache[next(iter(_cache))]
    _cache[key] = data
    return data


WHERE = "measurement.batch_size"
_sizes: dict[str, int] = {}
"""Batch sizes of models that this process has measured: every candidate is measured beside the same source."""


def sized(request: MeasureRequest) -> tuple[MeasureRequest, str]:
    """Fix the setting `batch_size` that source and candidate are measured with.

    The setting itself comes first, then a fixed batch of the model, then the batch size of the data, as far as the
    source model allows it (the candidate if the source does not run); 1 if the data give none.

    Returns:
        The request, and the reason why the source cannot be run (empty: it can).

    Raises:
        InputError: the model does not take the setting.
        Exception: onnxruntime's, where it refuses the candidate.
    """
    data, settings, target = evaluation_data(request), request.settings, request.target
    refusal = ""
    if request.source is not None and not request.is_source:
        try:
            key = digest_json(
                {
                    "source": request.source.digest,
                    "data": request.data_key,
                    "inputs": [
                        settings.dimensions,
                        settings.shapes,
                        settings.ranges,
                        settings.state,
                        settings.batch_size,
                    ],
                    "target": [target.execution_provider, target.threads],
                    "script": request.script_key,
                }
            )
            if key not in _sizes:
                _sizes[key] = _size(request, request.source, data)
            return with_batch_size(request, _sizes[key]), ""
        except Exception as error:  # The candidate is then measured without ratios.
            refusal = f"{type(error).__name__}: {error}"
    return with_batch_size(request, _size(request, request.candidate, data)), refusal


def with_batch_size(request: MeasureRequest, size: int) -> MeasureRequest:
    """Copy a request with another batch size."""
    return replace(request, settings=replace(request.settings, batch_size=size))


def _size(request: MeasureRequest, model: ModelFile, data: DataSet) -> int:
    """Find the batch size by running the model once: a first dimension may look free and not be."""
    runner = ModelRunner.open(model, request, packs_weights=False)
    setting = request.settings.batch_size
    size = setting or _allowed_size(runner.inputs, data, request.data_batch_size, has_state=bool(runner.state))
    try:
        runner.session.run(None, batch(runner, data, 0, size))
    except (InputError, MemoryError):
        raise
    except Exception as error:
        if size == 1 or batch_limit(runner.inputs, data.columns) is not None:
            raise
        runner.session.run(None, batch(runner, data, 0, 1))
        if setting:
            text = one_line(f"the model takes 1 item at a time, not {setting} ({type(error).__name__}: {error})")
            raise InputError(text, where=WHERE, remedy="set it to 1") from error
        return 1
    return size


def first_feed(request: MeasureRequest, inputs: Sequence[InputSpec]) -> Feed | None:
    """Select what `sized` and `batch` do for a model with these inputs and no state, without running it.

    Returns:
        The feed; None where only a run shows if the model takes a batch of the data's size.

    Raises:
        InputError: the data do not fit the inputs.
    """
    data = evaluation_data(request)
    size = request.settings.batch_size or _allowed_size(inputs, data, request.data_batch_size)
    if size > 1 and not request.settings.batch_size:
        return None
    return fit(items(data, 0, size), inputs, roles=input_roles(inputs, given=request.settings.roles))


def _allowed_size(inputs: Sequence[InputSpec], data: DataSet, data_size: int, *, has_state: bool = False) -> int:
    """Limit the data's batch size (0 counts as 1) to what the model and the items allow."""
    first_items = {name: arrays[0] for name, arrays in data.uneven.items()}
    fixed = batch_limit(inputs, {**data.columns, **first_items})
    shapes = [{array.shape for array in arrays} for arrays in data.uneven.values()]
    if data.uneven and (fixed is not None or max(map(len, shapes)) > 1):
        return 1
    if fixed is not None:
        return fixed
    if has_state:
        return 1
    return max(1, data_size)


def items(data: DataSet, number: int, size: int) -> Feed:
    """Select batch `number` of `size` items, spread over the data; the same items for source and candidate.

    Raises:
        InputError: the items of the batch differ in shape.
    """
    if any(np.shape(arrays[0])[:1] == (size,) for arrays in data.uneven.values()):
        size = 1  # Complete arrays: each of them is a batch already.
    start = (number * size) % max(1, len(data) - size + 1)
    indices = np.arange(start, start + size) % len(data)
    feeds = [feed for feed, _ in data.take(indices).feeds(size)]
    feed = feeds[0]
    for name, array in feed.items():
        arrays = [each[name] for each in feeds]
        if any(other.shape != array.shape for other in arrays):
            raise InputError(f"items that differ in shape do not form a batch of {size}", where=data.name)
        if len(feeds) > 1 and array.ndim:
            feed[name] = np.concatenate(arrays)
    return feed


def batch(runner: ModelRunner, data: DataSet, number: int, size: int) -> Feed:
    """Select batch `number` of `size` items in the form that the model takes.

    Raises:
        InputError: the model takes another number of items.
    """
    feed = runner.feed(items(data, number, size))
    for spec in runner.inputs:
        if spec.shape is None or spec.name not in feed:
            continue
        taken_size = _other_size(spec.shape, feed[spec.name], size)
        if taken_size is not None:
            noun = "item" if taken_size == 1 else "items"
            text = f"the model takes {taken_size} {noun} at a time (input {spec.name!r}), not {size}"
            raise InputError(text, where=WHERE, remedy=f"set it to {taken_size}")
    return feed


def _other_size(shape: Sequence[Dimension], array: np.ndarray, size: int) -> int | None:
    """Return the number of items that an input of that shape takes, if `array` has another number; else None."""
    if not array.ndim or (size == 1 and len(array) != 1):
        return None
    if array.ndim == len(shape) + 1 and size > 1:
        return 1
    if array.ndim != len(shape):
        return None
    fixed = shape[0]
    if isinstance(fixed, int) and 0 < fixed != len(array):
        return fixed
    return None
