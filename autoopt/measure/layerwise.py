"""Two models layer by layer: where their values begin to differ."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from autoopt.errors import InputError
from autoopt.measure.inference.inputs import evaluation_data
from autoopt.measure.inference.runner import Running, plain
from autoopt.measure.quality.fidelity import Array, compare_output
from autoopt.measure.request import Json, Model, Request

ITEMS = 4
GROUP = 64
"""Inner tensors fetched in one session: all at once would hold every activation of a large model."""
METRICS = ("cosine", "relative_l2", "max_abs_error")
OUTPUT_METRICS = (*METRICS, "top1_agreement", "kl")
NEAR = 0.999
"""Cosine below which two tensors count as different."""


@dataclass(frozen=True)
class TensorDistance:
    """One tensor that both models compute, in the order of the first; `op` makes it there."""

    name: str
    op: str
    shape: tuple[int, ...]
    cosine: float
    relative_l2: float
    max_abs_error: float


@dataclass(frozen=True)
class OutputDistance:
    """One output of the two models, with every fidelity metric that has a meaning for it (else None). `note`: what
    keeps it from being compared as numbers."""

    name: str
    shape: tuple[int, ...]
    cosine: float | None
    relative_l2: float | None
    max_abs_error: float | None
    top1_agreement: float | None
    kl: float | None
    note: str = ""


def compare_models(payload: Mapping[str, Any]) -> Json:
    """`{"candidate", "source", "data"?, "target"?, "settings": {"samples"}}` -> outputs and inner tensors compared.

    Returns `outputs` (all, by position) and `tensors` (by common name), each with its distances; `only_source` and
    `only_candidate` count the tensors that one of them lacks; `first_different` names the first tensor whose cosine
    is below 0.999, or is null.

    Raises:
        InputError: the models have different numbers of outputs.
        Exception: onnxruntime's, where it refuses a model.
    """
    request = Request.parse({**payload, "source": payload["source"]})
    if request.source is None:
        raise InputError("two models are needed to compare")
    made, ours = _made(request.source), _made(request.candidate)
    data = evaluation_data(request)
    feeds = [feed for feed, _ in data.feeds(1, int(request.settings.get("samples") or ITEMS))]
    outputs = _compare_outputs(request, request.source, feeds)
    common = [name for name in made if name in ours]
    tensors = [d for d in _distances(request, request.source, common, feeds, made) if d is not None]
    different = next((d.name for d in tensors if d.cosine < NEAR), None)
    return {
        "items": len(feeds),
        "outputs": [asdict(d) for d in outputs],
        "tensors": [asdict(d) for d in tensors],
        "only_source": len(made) - len(common),
        "only_candidate": len(ours) - len(common),
        "first_different": different,
    }


def _compare_outputs(request: Request, source: Model, feeds: Sequence[Any]) -> list[OutputDistance]:
    theirs, ours = Running.start(source, request), Running.start(request.candidate, request)
    if len(theirs.outputs) != len(ours.outputs):
        raise InputError(f"the models have {len(theirs.outputs)} and {len(ours.outputs)} outputs")
    base, mine = [theirs.run(f) for f in feeds], [ours.run(f) for f in feeds]
    return [
        _output(name, [_array(i[index]) for i in mine], [_array(i[index]) for i in base])
        for index, name in enumerate(theirs.outputs)
    ]


def _output(name: str, mine: Sequence[Array], base: Sequence[Array]) -> OutputDistance:
    shape = tuple(base[0].shape)
    found = {metric: compare_output(metric, mine, base) for metric in OUTPUT_METRICS}
    note = next((f"{_shape(b)} and {_shape(m)}" for m, b in zip(mine, base, strict=True) if m.shape != b.shape), "")
    if any(a.dtype.kind not in "fiub" for a in (*mine, *base)):
        note = "not numbers"
    return OutputDistance(name, shape, **{n: e.value if e else None for n, e in found.items()}, note=note)


def _array(value: Any) -> Array:
    """An output as one array: a sequence of tensors as its elements in a row, anything else that is no tensor as
    text."""
    value = plain(value)
    if isinstance(value, list) and value and all(isinstance(v, np.ndarray) for v in value):
        return np.concatenate([v.ravel() for v in value])
    return value if isinstance(value, np.ndarray) else np.array(str(value))


def _shape(array: Array) -> str:
    return "x".join(map(str, array.shape)) or "scalar"


def _distance(name: str, op: str, mine: Sequence[Any], base: Sequence[Any]) -> TensorDistance | None:
    """The distances, or None where the two are no numbers of one shape."""
    pairs = list(zip(mine, base, strict=True))
    if any(not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray) for a, b in pairs):
        return None
    if any(a.shape != b.shape or a.dtype.kind not in "fiub" or b.dtype.kind not in "fiub" for a, b in pairs):
        return None
    values = [compare_output(metric, mine, base) for metric in METRICS]
    cosine, relative, largest = (v.value if v else 0.0 for v in values)
    return TensorDistance(name, op, tuple(base[0].shape), cosine, relative, largest)


def _made(model: Model) -> dict[str, str]:
    """The tensors that the main graph's nodes make, in order, and by which operator."""
    from autoopt.model.io import parse

    nodes = parse(model.path).graph.node
    return {name: node.op_type for node in nodes for name in node.output if name and node.op_type != "Constant"}


def _distances(
    request: Request, source: Model, names: Sequence[str], feeds: Sequence[Any], made: Mapping[str, str]
) -> Iterator[TensorDistance | None]:
    for start in range(0, len(names), GROUP):
        group = list(names[start : start + GROUP])
        base = _fetch(request, source, group, feeds)
        mine = _fetch(request, request.candidate, group, feeds)
        for name in group:
            if name in base and name in mine:
                yield _distance(name, made[name], mine[name], base[name])


def _fetch(request: Request, model: Model, names: list[str], feeds: Sequence[Any]) -> dict[str, list[Any]]:
    """The values of inner tensors for each feed; those that cannot be outputs (a sequence without a type) are left
    out, found by halving the group."""
    try:
        return _fetch_all(request, model, names, feeds)
    except Exception:
        if len(names) == 1:
            return {}
        half = len(names) // 2
        return {**_fetch(request, model, names[:half], feeds), **_fetch(request, model, names[half:], feeds)}


def _fetch_all(request: Request, model: Model, names: list[str], feeds: Sequence[Any]) -> dict[str, list[Any]]:
    import onnx

    from autoopt.model import io

    proto = io.load(model.path)
    known = {output.name for output in proto.graph.output}
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in known)
    with tempfile.TemporaryDirectory(prefix="autoopt-") as folder:
        path = io.save(proto, Path(folder))
        running = Running.start(Model(str(path), {"graph_optimization_level": "disable"}), request)
        items = [dict(zip(running.outputs, running.run(feed), strict=True)) for feed in feeds]
    return {name: [item[name] for item in items] for name in names}
