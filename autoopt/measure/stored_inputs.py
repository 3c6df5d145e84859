"""Worker functions that store inputs: of one inference, as its latency is measured with, and of the parts of a set.

A set is run over data, and what reaches each part is stored, so that each can be calibrated and measured by itself.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final, TypeAlias

import numpy as np

from autoopt.data.config import DataConfig
from autoopt.data.dataset import Array, DataSet, Feed
from autoopt.data.fit import fit, specs_of
from autoopt.data.opening import open_data
from autoopt.data.sources.synthetic import assumed_sizes, input_spec
from autoopt.errors import InputError, one_line
from autoopt.json_codec import JsonObject, JsonValue, from_json, to_json
from autoopt.measure.inference import ModelRunner, batch, evaluation_data, first_feed, sized
from autoopt.measure.latency.prepare import read_profiles, request_for
from autoopt.measure.request import SET, MeasureRequest, Recording, RecordRequest
from autoopt.model.io import parse
from autoopt.model.model_set import CONTINUATION, ModelSet, ModelSetSession
from autoopt.model.session import make_session, make_set_session
from autoopt.model.tensors import constant_shapes
from autoopt.option_names import option
from autoopt.script import script_line

PLAIN = "biufcU"
"""Kinds of arrays that an .npz file holds without pickle."""
LICENCE = ("license", "licence")
UNOPTIMIZED = {"graph_optimization_level": "disable"}
"""Session options for one inference, before which optimizing the graph does not pay."""
MOST_BYTES: Final = 256 << 20
"""Size of the inputs of a part that are stored."""
Shapes: TypeAlias = tuple[tuple[str, tuple[int, ...]], ...]


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
    sample = _without_session(request) or _with_session(request)
    arrays: dict[str, Any] = {}
    for name, value in sample.feed.items():
        array = np.asarray(value)
        arrays[name] = array.astype(np.str_) if array.dtype.kind == "O" else array
        if arrays[name].dtype.kind not in PLAIN:
            raise InputError(f"input {name!r} of type {array.dtype} cannot be stored in an .npz file")
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


def _without_session(request: MeasureRequest) -> _Sample | None:
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


def _with_session(request: MeasureRequest) -> _Sample:
    """Find the inputs with a session."""
    options = {**request.candidate.session_options, **UNOPTIMIZED}
    request = replace(request, candidate=replace(request.candidate, session_options=options))
    request, _ = sized(request)
    runner = ModelRunner.open(request.candidate, request, timed=False)
    feed = batch(runner, evaluation_data(request), 0, request.settings.batch_size)
    metadata: Mapping[str, str] = runner.session.get_modelmeta().custom_metadata_map
    return _Sample(feed, request.settings.batch_size, metadata)


def record(payload: JsonObject) -> dict[str, JsonValue]:
    """Worker function: the JSON of a `RecordRequest` in, that of a `Recording` out.

    Raises:
        InputError: the data lack an input of the set.
    """
    request = from_json(RecordRequest, payload)
    calls, target = _Calls(), request.target
    open_model = partial(make_session, execution_provider=target.execution_provider, threads=target.threads)
    session = make_set_session(Path(request.path), open_model, observe=calls.observe, script=request.user_script)
    parts = session.description.parts
    if request.data is None:
        run = _run_on_made_up
        data, assumed = _made_up(session.description, Path(request.path).parent, request.generated)
    else:
        run = _run
        data, assumed = open_data(DataConfig.parse(dict(request.data)), None), ()
    feeds: list[Feed] = []
    by_part: dict[str, list[Feed]] = {name: [] for name in parts}
    outputs: dict[str, list[int]] = {}
    for feed in _feeds(session, data, request.start_token):
        calls.begin()
        complete, outputs = run(session, feed, request.new_tokens)
        calls.end()
        feeds.append(complete)
        for name, inputs in by_part.items():
            inputs.append(calls.typical(name))
        if max(len(inputs) * _bytes(inputs[0]) for inputs in by_part.values()) > MOST_BYTES:
            break
    for name, inputs in by_part.items():
        if not any(inputs):
            raise InputError(f"{name!r} is never run for these data", where=data.name)
    usual = _of_the_usual_shape([feeds, *by_part.values()])
    _store(Path(request.folder) / f"{SET}.npz", [feeds[index] for index in usual], _labels(data, usual))
    for name, inputs in by_part.items():
        _store(Path(request.folder) / f"{name}.npz", [inputs[index] for index in usual], {})
    reply = Recording(len(usual), calls.seconds_per_item(), calls.per_item(), outputs, assumed)
    return to_json(reply)


@dataclass
class _Calls:
    """The inferences of the parts for one item after the other."""

    _inputs: list[tuple[str, Feed]] = field(default_factory=list)
    _times: list[float] = field(default_factory=list)
    _seconds: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    _items: int = 0

    def observe(self, part: str, feed: Feed) -> None:
        """Note that a part begins to run, which ends the one before."""
        self._inputs.append((part, feed))
        self._times.append(time.perf_counter())

    def begin(self) -> None:
        """Begin an item."""
        self._inputs, self._times = [], []

    def end(self) -> None:
        """End an item. The first one does not count: it pays for reading the weights."""
        self._times.append(time.perf_counter())
        self._items += 1
        if self._items > 1:
            seconds: defaultdict[str, float] = defaultdict(float)
            for index, (part, _) in enumerate(self._inputs):
                seconds[part] += self._times[index + 1] - self._times[index]
            for part, taken in seconds.items():
                self._seconds[part].append(taken)

    def typical(self, part: str) -> Feed:
        """The inputs of a part's inference in the middle of this item; empty if it did not run."""
        inputs = [feed for name, feed in self._inputs if name == part]
        return inputs[len(inputs) // 2] if inputs else {}

    def seconds_per_item(self) -> dict[str, float]:
        """Usual time of each part for an item, in seconds.

        It is the median of the items for which the part ran, times their share: one interruption does not move it.
        """
        items = max(1, self._items - 1)
        return {part: median(seconds) * len(seconds) / items for part, seconds in self._seconds.items()}

    def per_item(self) -> dict[str, int]:
        """Inferences of each part for the last item."""
        return dict(Counter(name for name, _ in self._inputs))


def _made_up(description: ModelSet, folder: Path, params: Mapping[str, object]) -> tuple[DataSet, tuple[str, ...]]:
    """Make up the inputs of a set, each for the part that takes it first; return them and the sizes in words.

    What the parts give each other is not made up: it comes from running them.
    """
    names: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for name, target in description.inputs.items():
        part, _, taken = target.partition(".")
        names[part][taken] = name
    arrays: dict[str, list[Array]] = {}
    assumed: list[str] = []
    for part, inputs in names.items():
        model = str(folder / description.parts[part].file)
        made = open_data({"load_dataset": {"type": "synthetic", "params": dict(params)}}, model)
        own = {name: made.uneven[name] for name in inputs}
        arrays |= {inputs[name]: items for name, items in own.items()}
        assumed += assumed_sizes(model, own)
    return DataSet({}, None, arrays, name="generated inputs"), tuple(dict.fromkeys(assumed))


def _feeds(session: ModelSetSession, data: DataSet, start_token: int) -> Iterator[Feed]:
    """The inputs of the set for each item, with a prompt."""
    generation = session.description.generation
    specs = [spec for spec in specs_of(session) if spec.name != CONTINUATION]
    for feed, _ in data.feeds():
        if generation is not None and generation.prompt not in feed:
            feed = {**feed, generation.prompt: np.full((1, 1), start_token, np.int64)}
        yield fit(feed, specs)


def _run(session: ModelSetSession, feed: Feed, count: int) -> tuple[Feed, dict[str, list[int]]]:
    """Run a set on one item; return its inputs, with the generated tokens, and the shapes of a pipeline's outputs."""
    pipeline = session.description.pipeline
    if pipeline is not None:
        try:
            outputs: object = session.run_pipeline(feed)
        except Exception as error:
            reason = one_line(f"{pipeline.function} raised {type(error).__name__}: {error}")
            raise InputError(reason, where=script_line(error)) from error
        if not isinstance(outputs, dict) or not outputs:
            reason = f"{pipeline.function} returns {type(outputs).__name__}, not a dict of arrays"
            raise InputError(reason, remedy="return {name: array}")
        return feed, {name: list(np.shape(value)) for name, value in outputs.items()}
    if session.description.generation is not None:
        return {**feed, CONTINUATION: session.generate(feed, count)}, {}
    session.run(None, feed)
    return feed, {}


def _run_on_made_up(session: ModelSetSession, feed: Feed, count: int) -> tuple[Feed, dict[str, list[int]]]:
    """Run a set as `_run` does; say what to give if it does not run on what was made up.

    Sizes that the models leave open may have to fit each other in ways that only data show.
    """
    try:
        return _run(session, feed, count)
    except Exception as error:
        reason = one_line(f"the models do not run together on generated inputs: {error}")
        needed = ", ".join(session.description.inputs)
        raise InputError(reason, remedy=f"give {needed} with {option('data')}, or in data:") from error


def _of_the_usual_shape(feeds_by_file: Sequence[Sequence[Feed]]) -> list[int]:
    """The items that reach every part with inputs of the most frequent shapes: one file holds items of one shape."""
    shapes = [tuple(map(_shapes, feeds)) for feeds in zip(*feeds_by_file, strict=True) if all(feeds)]
    if not shapes:
        raise InputError("no item reaches every model")
    usual, _ = Counter(shapes).most_common(1)[0]
    feeds = enumerate(zip(*feeds_by_file, strict=True))
    return [index for index, each in feeds if tuple(map(_shapes, each)) == usual]


def _shapes(feed: Feed) -> Shapes:
    return tuple((name, np.shape(array)) for name, array in feed.items())


def _bytes(feed: Feed) -> int:
    return sum(np.asarray(array).nbytes for array in feed.values())


def _labels(data: DataSet, indices: Sequence[int]) -> Feed:
    if data.labels is None:
        return {}
    return {"labels": np.asarray(data.labels)[np.asarray(indices)]}


def _store(path: Path, feeds: Sequence[Feed], labels: Feed) -> None:
    """Write items as one array per input, with the items along axis 0."""
    columns: Feed = {}
    for name in feeds[0]:
        arrays = [np.asarray(feed[name]) for feed in feeds]
        if arrays[0].dtype.kind in "OUS":
            raise InputError(f"input {name!r} is text, which is not supported for several models", where=str(path.stem))
        if arrays[0].ndim and len(arrays[0]) == 1:
            columns[name] = np.concatenate(arrays)
        else:
            columns[name] = np.stack(arrays)
    np.savez(path, **columns, **labels)  # type: ignore[arg-type]  # numpy's stub takes the names for its own options
