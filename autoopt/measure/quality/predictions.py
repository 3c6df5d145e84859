"""The outputs of a model over a data set, item by item or as predictions; those of the source model are cached."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autoopt.data.dataset import DataSet
from autoopt.data.opening import post_processor
from autoopt.errors import InputError
from autoopt.measure.inference import Item, ModelRunner, plain, same_values
from autoopt.measure.request import MeasureRequest
from autoopt.model.candidate import digest_json
from autoopt.model.model_file import ModelFile

CACHE_BYTES = 512 << 20
"""Outputs of models that stay in a worker's memory: the source's are compared with each candidate's."""
_cache: dict[str, list[Item]] = {}
"""Outputs of source models in this process: every candidate is compared with them."""


def subset(request: MeasureRequest, data: DataSet, count: int) -> DataSet:
    """Select `count` items, the same for every model.

    The items come in one random order, because data are often sorted by class and the first items then lack classes.
    They stay in their order if all are used, or if recurrent state is fed back.
    """
    if count >= len(data):
        return data
    return data.take(_chosen(request, data, count))


def _chosen(request: MeasureRequest, data: DataSet, count: int) -> np.ndarray:
    """The indices of the items that `subset` selects; a smaller number selects some of them."""
    if count >= len(data) or request.states:
        return np.arange(min(count, len(data)))
    return np.random.default_rng(0).permutation(len(data))[:count]


def more_outputs_of(
    request: MeasureRequest,
    model: ModelFile,
    data: DataSet,
    count: int,
    known: Sequence[Item],
    runner: ModelRunner | None = None,
) -> list[Item]:
    """The outputs of `subset(request, data, count)`; runs only items that are not `known`, those of a smaller subset.

    All items run again if recurrent state is fed back, and those of the source if they are in the cache. A `runner` of
    the model saves a session.
    """
    selected = subset(request, data, count)
    is_source = request.source is not None and model.same_as(request.source)
    if request.states or (is_source and _cache_key(request, model, len(selected)) in _cache):
        return outputs_of(request, model, selected, runner)
    outputs = dict(zip(_chosen(request, data, len(known)).tolist(), known, strict=True))
    indices = _chosen(request, data, count)
    missing = np.array([index for index in indices if index not in outputs])
    outputs.update(zip(missing.tolist(), _run(request, model, data.take(missing), runner), strict=True))
    complete = [outputs[index] for index in indices]
    if is_source:
        _remember(_cache_key(request, model, len(selected)), complete)
    return complete


def outputs_of(
    request: MeasureRequest, model: ModelFile, data: DataSet, runner: ModelRunner | None = None
) -> list[Item]:
    """Run a model over data that `subset` has selected and return its outputs, item by item."""
    is_source = request.source is not None and model.same_as(request.source)
    if not is_source:
        return _run(request, model, data, runner)
    key = _cache_key(request, model, len(data))
    if key not in _cache:
        _remember(key, _run(request, model, data, runner))
    return _cache[key]


def has_source_outputs(request: MeasureRequest, items: int) -> bool:
    """Tell if the source's outputs for a subset of this size are known."""
    return request.source is not None and _cache_key(request, request.source, items) in _cache


def _remember(key: str, outputs: list[Item]) -> None:
    while _cache and sum(map(_bytes, _cache.values())) + _bytes(outputs) > CACHE_BYTES:
        del _cache[next(iter(_cache))]
    _cache[key] = outputs


def _run(request: MeasureRequest, model: ModelFile, data: DataSet, runner: ModelRunner | None) -> list[Item]:
    runner = runner or ModelRunner.open(model, request, timed=False)
    return list(runner.items(data, batch_size=request.settings.batch_size or request.data_batch_size))


def _cache_key(request: MeasureRequest, model: ModelFile, items: int) -> str:
    settings, target = request.settings, request.target
    return digest_json(
        {
            "model": model.digest,
            "data": [request.data_key, items],
            "script": request.script_key,
            "inputs": settings.made_up,
            "state": [settings.state, settings.reset_every],
            "target": [target.execution_provider, target.threads, settings.batch_size or request.data_batch_size],
        }
    )


def _bytes(items: Sequence[Item]) -> int:
    if not items:
        return 0
    # Outputs that are not arrays count as 64 bytes.
    return sum(getattr(value, "nbytes", 64) for value in items[0]) * len(items)


def predictions_of(request: MeasureRequest, model: ModelFile, items: Sequence[Item]) -> list[object]:
    """Return what task metrics take: the outputs with items along axis 0, post-processed if the data say so.

    The setting `task_output` (a name or an index) moves that output to the front.

    Raises:
        InputError: the model has no such output.
    """
    post_process = post_processor(request.data) if request.data else None
    if post_process is not None:
        return [stack_or_list([post_process(item) for item in items])]  # type: ignore[arg-type]  # also lists and maps
    columns = [stack_or_list(list(map(plain, values))) for values in zip(*items, strict=True)]
    chosen = request.settings.task_output
    if chosen is None:
        return columns
    names = ModelRunner.open(model, request, packs_weights=False).outputs
    if isinstance(chosen, str) and chosen in names:
        chosen = names.index(chosen)
    if isinstance(chosen, str) or not 0 <= chosen < len(columns):
        raise InputError(f"no output {chosen!r}", remedy=f"the model has: {', '.join(names)}")
    return [columns.pop(chosen), *columns]


def same_outputs(one: Sequence[Item], other: Sequence[Item]) -> bool:
    """True if the outputs of two models are the same up to rounding, for every item."""
    for values, others in zip(one, other, strict=True):
        if len(values) != len(others) or not all(map(same_values, values, others)):
            return False
    return True


def stack_or_list(values: Sequence[object]) -> object:
    """Return one array with items along axis 0, or a list if the items' shapes differ."""
    if any(isinstance(value, list | dict) for value in values):
        return list(values)
    if len({np.asarray(value).shape for value in values}) > 1:
        return list(values)
    arrays = list(map(np.asarray, values))
    if arrays[0].ndim and arrays[0].shape[0] == 1:
        return np.concatenate(arrays)
    return np.stack(arrays)
