"""The open models of one measurement: a prompt and the steps after it are timed in the same sessions.

To open a decoder of 4.4 GB takes 8 s of CPU and its size in memory, an inference 0.6 to 1.6 s.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from autoopt.measure.inference.runner import ModelRunner
from autoopt.measure.request import MeasureRequest
from autoopt.model.candidate import digest_json
from autoopt.model.model_file import ModelFile


@dataclass
class SharedRunners:
    """Opens the models of a request. Those with the same options and number are opened once, if they are `shared`."""

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
