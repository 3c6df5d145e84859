"""Task metrics and fidelity of a candidate beside its source, on the same items."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from statistics import NormalDist
from typing import Any

import numpy as np

from autoopt.data.dataset import DataSet, plain_labels
from autoopt.data.digest import digest
from autoopt.data.opening import post_processor
from autoopt.errors import InputError
from autoopt.measure.inference.inputs import evaluation_data
from autoopt.measure.inference.runner import Item, Running, plain, stack
from autoopt.measure.quality import task as task_metrics
from autoopt.measure.quality.fidelity import compare_output
from autoopt.measure.request import Json, Model, Request, answer
from autoopt.metrics import METRICS, Constraint, Estimate, Metric, get_metric
from autoopt.model.candidate import digest_json

FIDELITY_ITEMS = 64
FIRST_SUBSET = 128
CACHE_BYTES = 512 << 20


def fidelity(request: Request) -> Json:
    """Each metric for each output; its value is the worst output's (`top1_agreement`: the first output's).

    Raises:
        InputError: there is no source to compare with, or the outputs are others.
    """
    if request.source is None:
        raise InputError("fidelity needs the source model")
    data = _some(request, evaluation_data(request), int(request.settings.get("samples") or FIDELITY_ITEMS))
    theirs = _outputs(request, request.source, data)
    ours = theirs if request.is_source else _outputs(request, request.candidate, data)
    names = Running.start(request.candidate, request).outputs
    if len(ours[0]) != len(theirs[0]):
        raise InputError(f"the candidate has {len(ours[0])} outputs, the source {len(theirs[0])}")
    metrics: dict[str, Estimate] = {}
    per_output: dict[str, dict[str, Any]] = {name: {} for name in names}
    for metric in request.metrics:
        found: list[Estimate] = []
        for index, name in enumerate(names):
            one = compare_output(metric, [plain(i[index]) for i in ours], [plain(i[index]) for i in theirs])
            if one is not None:
                found.append(one)
                per_output[name][metric] = {"value": one.value, "low": one.low, "high": one.high}
        if found:
            metrics[metric] = found[0] if metric == "top1_agreement" else _worst(metric, found)
    return answer(metrics, details={"items": len(ours), "outputs": per_output})


def _worst(metric: str, found: Sequence[Estimate]) -> Estimate:
    pick = min if METRICS[metric].direction == "maximize" else max
    return pick(found, key=lambda e: e.value)


def task(request: Request) -> Json:
    """Task metrics of both models, and the paired interval of the drop in `details["drops"]`.

    With the setting `sequential`, growing subsets (see `_some`) are taken until every constraint in the setting
    `constraints` is told, or the data end.

    Raises:
        InputError: no labelled data, or outputs that do not fit the labels.
    """
    data = evaluation_data(request) if request.data is not None else None
    if data is None or data.labels is None:
        raise InputError("task metrics need labelled data", remedy="give data with labels")
    data = replace(data, labels=plain_labels(data.labels))
    subsets = list(_subsets(len(data), bool(request.settings.get("sequential"))))
    for count in subsets:
        answered = _task(request, _some(request, data, count), len(data))
        if _told(request, answered, looks=len(subsets)):
            break
    return answered


def _subsets(count: int, sequential: bool) -> Iterator[int]:
    size = FIRST_SUBSET
    while sequential and size < count:
        yield size
        size *= 2
    yield count


def _some(request: Request, data: DataSet, count: int) -> DataSet:
    """`count` items, the same for every model: in one random order, because data are often sorted by class, of which
    fewer are the first ones. As they come where all are taken, and the first ones where recurrent state is fed back."""
    if count >= len(data):
        return data
    in_order = request.settings.get("state") or (request.data is not None and request.data.state)
    return data.take(np.arange(count) if in_order else np.random.default_rng(0).permutation(len(data))[:count])


def _task(request: Request, data: DataSet, of: int) -> Json:
    labels = data.labels
    ours = _predictions(request, request.candidate, data)
    metrics = {name: _metric(name, ours, labels) for name in request.metrics}
    details: Json = {"items": len(data), "of": of}
    theirs: list[Any] | None = None
    if request.source is not None:
        try:
            theirs = ours if request.is_source else _predictions(request, request.source, data)
        except Exception as error:  # a source that the runtime refuses: the candidate is measured without comparison
            details["source_refused"] = f"{type(error).__name__}: {error}"
    if theirs is None:
        return answer(metrics, details=details)
    source = {name: _metric(name, theirs, labels) for name in request.metrics}
    drops = {name: _drop(request, name, ours, theirs, labels) for name in request.metrics}
    details["drops"] = {n: {"value": e.value, "low": e.low, "high": e.high} for n, e in drops.items()}
    return answer(metrics, source, details=details)


def _metric(name: str, outputs: list[Any], labels: Any) -> Estimate:
    try:
        return _finite(name, task_metrics.measure(name, outputs, labels))
    except InputError as error:
        raise InputError(f"{name}: {error.what}", where=error.where, remedy=error.remedy) from error
    except (ValueError, IndexError, TypeError, AttributeError) as error:  # what numpy says of arrays that do not fit
        shapes = ", ".join(_shape(o) for o in outputs)
        raise InputError(
            f"{name} cannot be told from outputs of {shapes} and labels of {_shape(labels)} ({error})",
            remedy="task_output or post_process choose the output",
        ) from error


def _shape(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{'texts' if value.dtype.kind in 'OU' else value.dtype} {list(value.shape)}"
    return f"{len(value)} items of different shapes"


def _drop(request: Request, name: str, ours: list[Any], theirs: list[Any], labels: Any) -> Estimate:
    if request.is_source:
        return Estimate.exact(0.0)
    return _finite(name, task_metrics.drop(name, ours, theirs, labels), drop=True)


def custom(request: Request) -> Json:
    """The user script's metrics of both models, paired where they have one value per item.

    Raises:
        InputError: no script, no such metric, or it returned no number.
    """
    from autoopt.measure.quality import custom as own
    from autoopt.script import load_script

    if request.user_script is None:
        raise InputError("custom metrics need the user script that defines them")
    load_script(request.user_script)
    data = evaluation_data(request)
    known = own.registered()
    ours = _predictions(request, request.candidate, data)
    theirs = None if request.source is None else _predictions(request, request.source, data)
    metrics: dict[str, Estimate] = {}
    source: dict[str, Estimate] = {}
    drops: dict[str, Json] = {}
    for name in request.metrics:
        mine = own.values(name, ours, data.labels)
        metrics[name] = _finite(name, own.estimate(mine), known)
        if theirs is not None:
            base = own.values(name, theirs, data.labels)
            source[name] = _finite(name, own.estimate(base), known)
            paired = own.drop(known[name], mine, base)
            if paired is not None:
                drops[name] = {"value": paired.value, "low": paired.low, "high": paired.high}
    return answer(metrics, source, details={"items": len(data), "drops": drops})


def _finite(name: str, estimate: Estimate, custom: Mapping[str, Metric] | None = None, drop: bool = False) -> Estimate:
    """The estimate, or the worst one where it is not a number: JSON has none."""
    if all(np.isfinite([estimate.value, estimate.low, estimate.high])):
        return estimate
    best_is_high = get_metric(name, custom).direction == "maximize" and not drop
    return Estimate.exact(-1e308 if best_is_high else 1e308)


def _told(request: Request, answered: Json, looks: int) -> bool:
    """Whether every constraint is certain. Whoever looks several times is wrong several times as often, so the
    intervals are stretched to share the 5 % among all looks."""
    from autoopt.measure.constraints import judge

    constraints = [Constraint(**c) for c in request.settings.get("constraints", [])]
    judged = [c for c in constraints if c.metric in answered["metrics"]]
    factor = NormalDist().inv_cdf(1 - 0.025 / looks) / NormalDist().inv_cdf(0.975)
    metrics, source, ratios = (
        {n: _stretched(e, factor) for n, e in answered[part].items()}
        for part in ("metrics", "source_metrics", "ratios")
    )
    drops = {n: asdict(_stretched(e, factor)) for n, e in answered["details"].get("drops", {}).items()}
    return bool(judged) and all(
        judge(
            c, get_metric(c.metric), metrics[c.metric], source.get(c.metric), ratios.get(c.metric), {"drops": drops}
        ).holds
        != "cannot be told"
        for c in judged
    )


def _stretched(estimate: Mapping[str, float], factor: float) -> Estimate:
    value = estimate["value"]
    return Estimate(value, value - factor * (value - estimate["low"]), value + factor * (estimate["high"] - value))


def _predictions(request: Request, model: Model, data: DataSet) -> list[Any]:
    """What the task metrics take: the outputs with items along axis 0, post-processed where the data say how; the
    setting `task_output` (a name or a number) brings that output to the front."""
    items = _outputs(request, model, data)
    post = post_processor(request.data) if request.data else None
    if post is not None:
        return [stack_or_list([post(item) for item in items])]
    columns = [stack_or_list([plain(item[i]) for item in items]) for i in range(len(items[0]))]
    chosen = request.settings.get("task_output")
    if chosen is None:
        return columns
    names = Running.start(model, request).outputs
    if chosen not in names and not (isinstance(chosen, int) and 0 <= chosen < len(columns)):
        raise InputError(f"no output {chosen!r}", remedy=f"the model has: {', '.join(names)}")
    index = chosen if isinstance(chosen, int) else names.index(chosen)
    return [columns[index], *(c for i, c in enumerate(columns) if i != index)]


def stack_or_list(values: Sequence[Any]) -> Any:
    """One array with items along axis 0, or the list itself where the items' shapes differ."""
    if any(isinstance(v, list | dict) for v in values) or len({np.shape(v) for v in values}) > 1:
        return list(values)
    return stack(values)


_outputs_cache: dict[str, list[Item]] = {}


def _outputs(request: Request, model: Model, data: DataSet) -> list[Item]:
    """The outputs of what `_some` gave, item by item; those of the source model are kept in this process."""
    is_source = request.source is not None and model.same_as(request.source)
    if not is_source:
        return list(Running.start(model, request).items(data, batch_size=_batch(request)))
    key = _key(request, model, len(data))
    known = _outputs_cache.get(key)
    if known is None:
        known = list(Running.start(model, request).items(data, batch_size=_batch(request)))
        while _outputs_cache and _bytes() + _size(known) > CACHE_BYTES:
            del _outputs_cache[next(iter(_outputs_cache))]
        _outputs_cache[key] = known
    return known


def _batch(request: Request) -> int:
    return int(request.settings.get("batch_size") or (request.data.batch_size if request.data else 0))


def _key(request: Request, model: Model, items: int) -> str:
    relevant = ("dimensions", "shapes", "ranges", "state", "reset_every")
    parts: Mapping[str, Any] = {
        "data": [digest(request.data) if request.data else "", items],
        "settings": {k: v for k, v in request.settings.items() if k in relevant},
        "target": [request.execution_provider, request.threads, _batch(request)],
    }
    return digest_json({"model": model.digest, **parts})


def _bytes() -> int:
    return sum(_size(items) for items in _outputs_cache.values())


def _size(items: Sequence[Item]) -> int:
    return sum(getattr(v, "nbytes", 64) for v in items[0]) * len(items) if items else 0
