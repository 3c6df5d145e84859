"""The worker function that stores the inputs of one inference, as latencies are measured with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from autoopt.errors import InputError
from autoopt.json_codec import JsonValue
from autoopt.measure.inference.batches import batch, sized
from autoopt.measure.inference.inputs import evaluation_data
from autoopt.measure.inference.runner import ModelRunner
from autoopt.measure.latency.profiles import read_profiles, request_for
from autoopt.measure.request import MeasureRequest

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
    options = {**request.candidate.session_options, **UNOPTIMIZED}
    request = replace(request, candidate=replace(request.candidate, session_options=options))
    if request.settings.profiles:
        request = request_for(request, read_profiles(request)[0])
    request, _ = sized(request)
    runner = ModelRunner.open(request.candidate, request, timed=False)
    feed = batch(runner, evaluation_data(request), 0, request.settings.batch_size)
    arrays: dict[str, Any] = {name: _plain(name, value) for name, value in feed.items()}
    with Path(str(payload["path"])).open("wb") as file:
        np.savez_compressed(file, **arrays)
    metadata: Mapping[str, str] = runner.session.get_modelmeta().custom_metadata_map
    licences = [value for key, value in metadata.items() if key.lower() in LICENCE]
    return {"batch_size": request.settings.batch_size, "licence": next(iter(licences), "")}


def _plain(name: str, value: object) -> np.ndarray:
    array = np.asarray(value)
    if array.dtype.kind == "O":
        array = array.astype(np.str_)
    if array.dtype.kind not in PLAIN:
        raise InputError(f"input {name!r} of type {array.dtype} cannot be stored in an .npz file")
    return array
