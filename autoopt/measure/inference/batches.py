"""Batches for latency and memory: how many items one inference takes, and which."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from autoopt.data.dataset import DataSet, Feed
from autoopt.data.fit import batch_limit
from autoopt.errors import InputError, one_line
from autoopt.measure.inference.inputs import evaluation_data
from autoopt.measure.inference.runner import Running
from autoopt.measure.request import Model, Request

WHERE = "measurement.batch_size"


def sized(request: Request) -> tuple[Request, str]:
    """The request with the setting `batch_size` that all is measured with, and why the source cannot be run beside
    the candidate (empty: it can).

    It is the setting itself where there is one, else the batch size of the data as far as the source model allows (the
    candidate where no source runs); 1 where the data say nothing. A fixed batch of the model goes before the data.

    Raises:
        InputError: the setting is not what the model takes.
        Exception: onnxruntime's, where it refuses the candidate.
    """
    data = evaluation_data(request)
    refused = ""
    if request.source is not None and not request.is_source:
        try:
            return _with(request, _size(request, request.source, data)), ""
        except Exception as error:  # the candidate is measured without ratios
            refused = f"{type(error).__name__}: {error}"
    return _with(request, _size(request, request.candidate, data)), refused


def batch_size(request: Request) -> int:
    """Items per inference of a sized request."""
    return int(request.settings.get("batch_size") or 1)


def _with(request: Request, size: int) -> Request:
    return replace(request, settings={**request.settings, "batch_size": size})


def _size(request: Request, model: Model, data: DataSet) -> int:
    """Found by running the model once: a first dimension may look free and not be."""
    running = Running.start(model, request)
    given = int(request.settings.get("batch_size") or 0)
    size = given or _allowed(running, data, request.data.batch_size if request.data else 0)
    try:
        running.session.run(None, batch(running, data, 0, size))
    except InputError:
        raise
    except Exception as error:
        if size == 1 or batch_limit(running.inputs, data.columns) is not None:
            raise
        running.session.run(None, batch(running, data, 0, 1))
        if given:
            text = one_line(f"the model takes 1 item at a time, not {given} ({type(error).__name__}: {error})")
            raise InputError(text, where=WHERE, remedy="set it to 1") from error
        return 1
    return size


def _allowed(running: Running, data: DataSet, wanted: int) -> int:
    """`wanted` items as far as model and items allow; 0 counts as 1."""
    fixed = batch_limit(running.inputs, {**data.columns, **{n: arrays[0] for n, arrays in data.uneven.items()}})
    if data.uneven and (fixed is not None or any(len({a.shape for a in i}) > 1 for i in data.uneven.values())):
        return 1
    if fixed is not None:
        return fixed
    return 1 if running.state else max(1, wanted)


def items(data: DataSet, number: int, size: int) -> Feed:
    """Batch `number` of `size` items, spread over the data; the same ones for source and candidate.

    Raises:
        InputError: a batch of items that differ in shape.
    """
    if any(len(arrays[0]) == size for arrays in data.uneven.values() if np.ndim(arrays[0])):
        size = 1  # complete arrays, each a batch already
    start = (number * size) % max(1, len(data) - size + 1)
    first, *others = (feed for feed, _ in data.take(np.arange(start, start + size) % len(data)).feeds(size))
    if any(one[n].shape != a.shape for one in others for n, a in first.items()):
        raise InputError(f"items that differ in shape make no batch of {size}", where=data.name)
    return {n: np.concatenate([a, *(one[n] for one in others)]) if others and a.ndim else a for n, a in first.items()}


def batch(running: Running, data: DataSet, number: int, size: int) -> Feed:
    """Those items as the model takes them.

    Raises:
        InputError: the model takes another number of items.
    """
    feed = running.feed(items(data, number, size))
    for spec in running.inputs:
        taken = _taken(spec.shape, feed.get(spec.name), size)
        if taken is not None:
            what = f"the model takes {taken} {'item' if taken == 1 else 'items'} at a time (input {spec.name!r})"
            raise InputError(f"{what}, not {size}", where=WHERE, remedy=f"set it to {taken}")
    return feed


def _taken(shape: Any, array: Any, size: int) -> int | None:
    """How many items an input of that shape takes, where it does not take those."""
    if not isinstance(array, np.ndarray) or shape is None or not array.ndim or (size == 1 and len(array) != 1):
        return None
    if array.ndim == len(shape) + 1 and size > 1:
        return 1
    fixed = shape[0] if array.ndim == len(shape) and isinstance(shape[0], int) else 0
    return fixed if fixed > 0 and fixed != len(array) else None
