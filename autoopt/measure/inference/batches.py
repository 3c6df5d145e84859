"""The items that a meter runs, given or made up, and their batches for latency and memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from autoopt.data.dataset import DataSet, Feed
from autoopt.data.digest import check_unchanged
from autoopt.data.fit import InputSpec, batch_limit, fit
from autoopt.data.opening import open_data
from autoopt.errors import InputError, one_line
from autoopt.measure.inference.runner import ModelRunner
from autoopt.measure.request import MeasureRequest
from autoopt.model.candidate import digest_json
from autoopt.model.model_file import ModelFile
from autoopt.model.roles import Dimension, input_roles

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
    data = evaluation_data(request)
    refusal = ""
    if request.source is not None and not request.is_source:
        try:
            return with_batch_size(request, _source_size(request, request.source, data)), ""
        except Exception as error:  # The candidate is then measured without ratios.
            refusal = f"{type(error).__name__}: {error}"
    return with_batch_size(request, _size(request, request.candidate, data)), refusal


def with_batch_size(request: MeasureRequest, size: int) -> MeasureRequest:
    """Copy a request with another batch size."""
    return replace(request, settings=replace(request.settings, batch_size=size))


def _source_size(request: MeasureRequest, source: ModelFile, data: DataSet) -> int:
    """Find the batch size of the source as `_size` does, once for each content, data and target."""
    settings, target = request.settings, request.target
    key = digest_json(
        {
            "source": source.digest,
            "data": request.data_key,
            "inputs": [settings.dimensions, settings.shapes, settings.ranges, settings.state, settings.batch_size],
            "target": [target.execution_provider, target.threads],
            "script": request.script_key,
        }
    )
    if key not in _sizes:
        _sizes[key] = _size(request, source, data)
    return _sizes[key]


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
