"""The first room of a latency measurement: from a request to what is timed.

A measurement may open its sessions once for several calls (`SharedRunners`), and first looks share those of the source
(`OpenSessions`). A request with profiles becomes one request for each (`read_profiles`, `request_for`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from autoopt.data.dataset import DataSet, Feed
from autoopt.data.sources.synthetic import read_inputs
from autoopt.errors import InputError, did_you_mean
from autoopt.json_codec import JsonTypeError, JsonValue, from_json
from autoopt.measure.inference import ModelRunner, batch, evaluation_data, sized
from autoopt.measure.latency.busy import thread_count
from autoopt.measure.latency.executed_graph import executed_graphs
from autoopt.measure.latency.generation import MakeCall, generation_calls, shared_time
from autoopt.measure.latency.timer import Call, Replica, Subject, SubjectOf, lead_of
from autoopt.measure.request import MeasureRequest
from autoopt.metrics import MEDIAN_LATENCY, START_UP, TOKEN_RATE
from autoopt.model.candidate import digest_json
from autoopt.model.model_file import ModelFile, size_of
from autoopt.model.run_package import caller
from autoopt.model.session import is_idle
from autoopt.target import DEVICE_OF
from autoopt.tuning import TIMING


@dataclass(frozen=True)
class TimedCall:
    """A kind of call that all models are timed for: an inference, a prompt, or a step of generation."""

    metric: str
    """The metric that it is timed for: `MEDIAN_LATENCY` for all metrics of an inference, or one of generation."""
    subject_of: SubjectOf
    source_subject_of: SubjectOf


@dataclass(frozen=True)
class Prepared:
    """A request that is ready to be timed."""

    request: MeasureRequest
    """With the batch size and the time that apply."""
    calls: Sequence[TimedCall]
    """The inference first."""
    runners: SharedRunners
    source_refusal: str
    """The reason why the source is not timed; empty if it is."""
    graph: str
    """The digest of the graph that the runtime executes for the candidate; empty if unknown."""
    same_graph: bool
    """True if it is the source's, which is then timed in place of the candidate."""


def prepare(request: MeasureRequest) -> Prepared:
    """Prepare a request for timing: which calls of which models, with which inputs, for how long.

    Raises:
        InputError: the settings or the data do not fit the model.
        Exception: onnxruntime's, where it refuses the candidate.
    """
    graph, source_graph = request.executed_graphs or executed_graphs(request)
    same_graph = graph != "" and graph == source_graph
    if same_graph and request.source is not None:
        settings = replace(request.settings, seconds=min(request.settings.seconds, TIMING.brief_seconds))
        request = replace(request, candidate=request.source, settings=settings)
    request, source_refusal = sized(request)
    request = shared_time(request)
    data = evaluation_data(request)
    runners = SharedRunners(request, shared=TOKEN_RATE in request.metrics)
    inference = partial(subject_of, request, data, runners=runners)
    calls = [TimedCall(MEDIAN_LATENCY, inference, _OPEN_SESSIONS.reusing(request, inference))]
    for metric, make in generation_calls(request).items():
        generation = partial(subject_of, request, data, runners=runners, make=make)
        calls.append(TimedCall(metric, generation, generation))
    return Prepared(request, calls, runners, source_refusal, graph, same_graph)


def subject_of(
    request: MeasureRequest,
    data: DataSet,
    model: ModelFile,
    *,
    runners: SharedRunners | None = None,
    make: MakeCall | None = None,
) -> Subject:
    """Make the subject of a model; each of its sessions runs a batch of its own. `make` defaults to an inference."""
    opened = runners or SharedRunners(request)
    is_bound = bool(model.session_options.get("io_binding"))
    if DEVICE_OF.get(request.target.execution_provider) != "cpu" and "io_binding" not in model.session_options:
        is_bound = True  # Without binding, every inference would also copy its inputs to the device.
    make_call = make or partial(_inference, is_bound=is_bound)

    def open_call(number: int) -> Call:
        runner = opened.open(model, number)
        subject.is_idle = is_idle(runner.session, request.target.execution_provider)
        return make_call(runner, batch(runner, data, number, request.settings.batch_size))

    subject = Subject(open_call, lead_of(thread_count(request, model)))
    return subject


def _inference(runner: ModelRunner, feed: Feed, *, is_bound: bool) -> Call:
    own_feed = {name: np.array(value) if isinstance(value, np.ndarray) else value for name, value in feed.items()}
    return caller(runner.session, own_feed, is_bound=is_bound)


LARGEST: Final = 256 << 20
"""Bytes of a model up to which its sessions stay open: they need about twice as much memory."""


@dataclass
class SharedRunners:
    """Opens the models of a request. Those with the same options and number are opened once, if they are `shared`.

    A prompt and the steps after it are timed in the same sessions: to open a decoder of 4.4 GB takes 8 s of CPU and its
    size in memory, an inference 0.6 to 1.6 s.
    """

    request: MeasureRequest
    shared: bool = False
    _opened: dict[tuple[str, str, int], ModelRunner] = field(default_factory=dict)

    def open(self, model: ModelFile, number: int) -> ModelRunner:
        """Open replica `number` of a model, or return it if it is open."""
        if not self.shared:
            return ModelRunner.open(model, self.request)
        key = str(model.path), digest_json(model.session_options), number
        if key not in self._opened:
            self._opened[key] = ModelRunner.open(model, self.request)
        return self._opened[key]

    def close(self) -> None:
        """Close what nobody uses any more."""
        self._opened.clear()

    @property
    def replicas(self) -> int | None:
        """The largest number of replicas of a model that are open; None if none is kept."""
        return max((number + 1 for _, _, number in self._opened), default=None)


@dataclass
class OpenSessions:
    """The open sessions of one source in a worker: with its own options, and on one thread.

    To open one takes longer than to time it: 0.15 s for a transformer of 90 MB with inferences of 5 ms. All first looks
    then share the error of these sessions, which decides nothing: what may be the best is measured again, beside new
    ones.
    """

    _terms: str = ""
    """Digest of all that they depend on besides the session options."""
    _by_options: dict[str, list[Replica]] = field(default_factory=dict)

    def reusing(self, request: MeasureRequest, subject_of: SubjectOf) -> SubjectOf:
        """Make subjects of the request's source from open sessions, if it allows that; else as `subject_of` does."""
        source = request.source
        if source is None or not request.reuses_source or not _may_stay_open(request, source):
            return subject_of
        settings = replace(request.settings, incumbent_ratio=None, source_ms=None)
        same = replace(request, candidate=source, executed_graphs=None, settings=settings)
        terms = digest_json(same.to_json())
        if terms != self._terms:
            self._terms, self._by_options = terms, {}

        def subject_with_open_sessions(model: ModelFile) -> Subject:
            subject = subject_of(model)
            subject.kept = self._by_options.setdefault(digest_json(model.session_options), [])
            return subject

        return subject_with_open_sessions


_OPEN_SESSIONS = OpenSessions()
"""Shared by all measurements of this worker."""


def _may_stay_open(request: MeasureRequest, source: ModelFile) -> bool:
    """True for a source on the CPU that needs little memory, unless its start is measured."""
    if request.target.execution_provider != "CPUExecutionProvider" or set(START_UP) & set(request.metrics):
        return False
    return Path(source.path).suffix == ".onnx" and sum(size_of(source.path).values()) <= LARGEST


@dataclass(frozen=True)
class Profile:
    """One entry of the setting `profiles`: sizes of the inputs, and its weight in the mean."""

    name: str | int = ""
    """Defaults to the entry's number."""
    dimensions: Mapping[str, int] = field(default_factory=dict)
    shapes: Mapping[str, list[int]] = field(default_factory=dict)
    ranges: Mapping[str, list[float]] = field(default_factory=dict)
    weight: float = 1.0


def read_profiles(request: MeasureRequest) -> tuple[Profile, ...]:
    """Read and check the setting `profiles`.

    Raises:
        InputError: a profile has an unknown field, or names something that the source model does not have.
    """
    inputs = read_inputs((request.source or request.candidate).path).specs
    input_names = []
    symbols: set[str] = set()
    for spec in inputs:
        input_names.append(spec.name)
        symbols.update(size for size in spec.dims if isinstance(size, str))
    profiles: dict[str, Profile] = {}
    for number, entry in enumerate(request.settings.profiles):
        where = f"profiles[{number}]"
        _check_names(entry, ("name", "dimensions", "shapes", "ranges", "weight"), "setting", where)
        _check_names(entry.get("dimensions", {}), sorted(symbols), "symbolic dimension", f"{where}.dimensions")
        _check_names(entry.get("shapes", {}), input_names, "input", f"{where}.shapes")
        _check_names(entry.get("ranges", {}), input_names, "input", f"{where}.ranges")
        try:
            profile = from_json(Profile, entry)
        except JsonTypeError as error:
            raise InputError(str(error), where=where) from None
        if profile.weight <= 0:
            raise InputError(f"must be above 0, not {profile.weight:g}", where=f"{where}.weight")
        name = str(entry.get("name", number))
        if name in profiles:
            raise InputError(f"two profiles have the name {name!r}", where="profiles")
        profiles[name] = replace(profile, name=name)
    return tuple(profiles.values())


def _check_names(entries: JsonValue, names: Collection[str], noun: str, where: str) -> None:
    if not isinstance(entries, Mapping):
        raise InputError("must be a mapping", where=where)
    for name in entries:
        if name not in names:
            remedy = did_you_mean(str(name), names) or f"there are: {', '.join(names) or 'none'}"
            raise InputError(f"no {noun} {name!r}", where=where, remedy=remedy)


def request_for(request: MeasureRequest, profile: Profile) -> MeasureRequest:
    """Make the request for one profile: the same with synthetic inputs of its sizes."""
    settings = replace(
        request.settings,
        profiles=(),
        dimensions=profile.dimensions or request.settings.dimensions,
        shapes=profile.shapes or request.settings.shapes,
        ranges=profile.ranges or request.settings.ranges,
    )
    return replace(request, data=None, settings=settings)
