"""The worker function that stores the inputs of one inference, as latencies are measured with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from autoopt.data.dataset import Feed
from autoopt.data.sources.synthetic import input_spec
from autoopt.errors import InputError
from autoopt.json_codec import JsonValue
from autoopt.measure.inference.batches import batch, evaluation_data, first_feed, sized
from autoopt.measure.inference.runner import ModelRunner
from autoopt.measure.latency.profiles import read_profiles, request_for
from autoopt.measure.request import MeasureRequest
from autoopt.model.io import parse
from autoopt.model.tensors import constant_shapes

PLAIN = "biufcU"
"""Kinds of arrays that an .npz file holds without pickle."""
LICENCE = ("license", "licence")
UNOPTIMIZED = {"graph_optimization_level": "disable"}
"""Session options for one inference, before which optimizing the graph does not pay."""


def store_inputs(payload: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Store the first batch that the latency meter runs, for `{"request": MeasureRequest, "path": file.npz}`.

    Returns:
        `{"batch_size", "licence"}`; the licence from the model's metadata, empty if it states none.

    Raises:
        InputError: the data cannot be read, do not fit the model, or have a type that .npz files do not hold.
        Exception: onnxruntime's, where it refuses the model.
    """
    document = payload["request"]
    assert isinstance(document, Mapping)
    request = MeasureRequest.from_json(document)
    if request.settings.profiles:
        request = request_for(request, read_profiles(request)[0])
    sample = _read(request) or _run(request)
    arrays: dict[str, Any] = {name: _plain(name, value) for name, value in sample.feed.items()}
    with Path(str(payload["path"])).open("wb") as file:
        np.savez_compressed(file, **arrays)
    licences = [value for key, value in sample.metadata.items() if key.lower() in LICENCE]
    return {"batch_size": sample.batch_size, "licence": next(iter(licences), "")}


@dataclass(frozen=True)
class _Sample:
    """The inputs of one inference, and the model's metadata."""

    feed: Feed
    batch_size: int | None
    metadata: Mapping[str, str]


def _read(request: MeasureRequest) -> _Sample | None:
    """Find the inputs without a session, which takes half a minute for large tree ensembles; None if that needs one."""
    path = Path(request.candidate.path)
    if path.suffix != ".onnx" or request.states:
        return None
    model = parse(path)
    constants = constant_shapes(model.graph)
    inputs = [input_spec(value) for value in model.graph.input if value.name not in constants]
    if any(spec.shape is None for spec in inputs):
        return None
    feed = first_feed(request, inputs)
    if feed is None:
        return None
    return _Sample(feed, request.settings.batch_size or 1, {prop.key: prop.value for prop in model.metadata_props})


def _run(request: MeasureRequest) -> _Sample:
    """Find the inputs with a session."""
    options = {**request.candidate.session_options, **UNOPTIMIZED}
    request = replace(request, candidate=replace(request.candidate, session_options=options))
    request, _ = sized(request)
    runner = ModelRunner.open(request.candidate, request, timed=False)
    feed = batch(runner, evaluation_data(request), 0, request.settings.batch_size)
    metadata: Mapping[str, str] = runner.session.get_modelmeta().custom_metadata_map
    return _Sample(feed, request.settings.batch_size, metadata)


def _plain(name: str, value: object) -> np.ndarray:
    array = np.asarray(value)
    if array.dtype.kind == "O":
        array = array.astype(np.str_)
    if array.dtype.kind not in PLAIN:
        raise InputError(f"input {name!r} of type {array.dtype} cannot be stored in an .npz file")
    return array
