"""Sessions of the source that stay open in a worker, for the first looks at all candidates.

To open one takes longer than to time it: 0.15 s for a transformer of 90 MB with inferences of 5 ms. All first looks
then share the error of these sessions, which decides nothing: what may be the best is measured again, beside new ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from autoopt.measure.latency.subjects import Replica, Subject, SubjectOf
from autoopt.measure.request import MeasureRequest
from autoopt.metrics import START_UP
from autoopt.model.candidate import digest_json
from autoopt.model.model_file import ModelFile, size_of

LARGEST: Final = 256 << 20
"""Bytes of a model up to which its sessions stay open: they need about twice as much memory."""


class ReusedSubject(Subject):
    """A model whose sessions are open already, as far as there are any."""

    def __init__(self, subject: Subject, opened: list[Replica]) -> None:
        """Take sessions of `subject` from `opened`, and add those that open."""
        super().__init__(subject.make, subject.lead_ns)
        self._opened = opened

    @property
    def opening_ns(self) -> float:
        if len(self.replicas) < len(self._opened):
            return 0.0
        return super().opening_ns

    def add_replica(self, limit_ns: float) -> Replica:
        number = len(self.replicas)
        if number == len(self._opened):
            new = super().add_replica(limit_ns)
            self._opened.append(Replica(new.call, new.cold_start, new.first_inference, new.warm))
            return new
        opened = self._opened[number]
        opened.call()
        replica = Replica(opened.call, opened.cold_start, opened.first_inference, opened.warm)
        self.replicas.append(replica)
        return replica


@dataclass
class OpenSessions:
    """The open sessions of one source: with its own options, and on one thread."""

    _terms: str = ""
    """Digest of all that they depend on besides the session options."""
    _by_options: dict[str, list[Replica]] = field(default_factory=dict)

    def reusing(self, request: MeasureRequest, subject_of: SubjectOf) -> SubjectOf:
        """Make subjects of the request's source from open sessions, if it allows that; else as `subject_of` does."""
        source = request.source
        if source is None or not request.reuses_source or not _may_stay_open(request, source):
            return subject_of
        terms = _terms(request)
        if terms != self._terms:
            self._terms, self._by_options = terms, {}

        def subject_with_open_sessions(model: ModelFile) -> Subject:
            opened = self._by_options.setdefault(digest_json(model.session_options), [])
            return ReusedSubject(subject_of(model), opened)

        return subject_with_open_sessions


def _may_stay_open(request: MeasureRequest, source: ModelFile) -> bool:
    """True for a source on the CPU that needs little memory, unless its start is measured."""
    if request.target.execution_provider != "CPUExecutionProvider" or set(START_UP) & set(request.metrics):
        return False
    return Path(source.path).suffix == ".onnx" and sum(size_of(source.path).values()) <= LARGEST


def _terms(request: MeasureRequest) -> str:
    settings = replace(request.settings, incumbent_ratio=None, source_ms=None)
    same = replace(request, candidate=request.source or request.candidate, executed_graphs=None, settings=settings)
    return digest_json(same.to_json())
