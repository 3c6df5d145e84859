"""Sessions that are opened once: within a measurement, and of the source for the first looks at all candidates."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from autoopt.measure.inference.runner import ModelRunner
from autoopt.measure.latency.subjects import Replica, Subject, SubjectOf
from autoopt.measure.request import MeasureRequest
from autoopt.metrics import START_UP
from autoopt.model.candidate import digest_json
from autoopt.model.model_file import ModelFile, size_of

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


def _may_stay_open(request: MeasureRequest, source: ModelFile) -> bool:
    """True for a source on the CPU that needs little memory, unless its start is measured."""
    if request.target.execution_provider != "CPUExecutionProvider" or set(START_UP) & set(request.metrics):
        return False
    return Path(source.path).suffix == ".onnx" and sum(size_of(source.path).values()) <= LARGEST
