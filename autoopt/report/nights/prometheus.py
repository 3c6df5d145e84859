"""The newest night of each zoo as metrics in the text format of Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from autoopt.report.nights.night_history import StoredNight
from autoopt.report.sweeps.gains import gain_of
from autoopt.report.words.figures import first_objective
from autoopt.results import SweepEntry
from autoopt.results.sweep import OK

HELP: Final[Mapping[str, str]] = {
    "night_start_time_seconds": "Beginning of the newest finished sweep, in seconds since 1970.",
    "night_duration_seconds": "Duration of the newest finished sweep.",
    "night_failed": "1 if it ended with an unaccepted regression or without any result.",
    "night_models": "Its models by status.",
    "night_regressions": "Its models that regressed.",
    "night_models_left_out": "Models that it had no time for.",
    "model_ok": "1 if the model has a result that meets its constraints.",
    "model_regressed": "1 if the model is worse than its release or last good sweep.",
    "model_gain_ratio": "How many times better than the source the best model is, by its first objective.",
    "model_value": "First objective of the source and of the best model, in milliseconds, bytes or its own unit.",
}
"""The metrics in their order."""


@dataclass
class _Samples:
    lines: dict[str, list[str]] = field(default_factory=lambda: {name: [] for name in HELP})

    def add(self, name: str, value: float, **labels: str) -> None:
        pairs = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        self.lines[name].append(f"autoopt_{name}{{{pairs}}} {value:.10g}")


def prometheus_text(nights: Sequence[StoredNight]) -> str:
    """Render the newest night of each zoo."""
    samples = _Samples()
    for night in nights:
        _add_night(samples, night)
        for entry in night.result.models:
            _add_model(samples, night.result.name, entry)
    return "".join(line + "\n" for line in _document(samples))


def _document(samples: _Samples) -> Iterator[str]:
    for name, lines in samples.lines.items():
        if lines:
            yield f"# HELP autoopt_{name} {HELP[name]}"
            yield f"# TYPE autoopt_{name} gauge"
            yield from lines


def _add_night(samples: _Samples, night: StoredNight) -> None:
    result, zoo = night.result, night.result.name
    samples.add("night_start_time_seconds", night.time, zoo=zoo)
    samples.add("night_duration_seconds", result.seconds, zoo=zoo)
    samples.add("night_failed", result.failed, zoo=zoo)
    for status, count in Counter(entry.status for entry in result.models).items():
        samples.add("night_models", count, zoo=zoo, status=status)
    samples.add("night_regressions", len(result.regressions), zoo=zoo)
    samples.add("night_models_left_out", len(result.not_run), zoo=zoo)


def _add_model(samples: _Samples, zoo: str, entry: SweepEntry) -> None:
    samples.add("model_ok", entry.status == OK, zoo=zoo, model=entry.name)
    samples.add("model_regressed", entry.compared.regressed, zoo=zoo, model=entry.name)
    if entry.result is None or entry.best is None:
        return
    metric = first_objective(entry.result).metric
    gain = gain_of(entry)
    if gain is not None:
        samples.add("model_gain_ratio", gain.value, zoo=zoo, model=entry.name, metric=metric)
    for subject, values in (("source", entry.result.baseline.metrics), ("best", entry.best.metrics)):
        if metric in values:
            samples.add("model_value", values[metric], zoo=zoo, model=entry.name, metric=metric, of=subject)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
