"""Older result documents, brought to the current schema.

Schema 1 (documents without a `schema` field) wrote the intervals of the source model as `[low, high]`, and some
estimates as plain numbers. Schema 2 writes every estimate as `{value, low, high}`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from autoopt.errors import SystemFailure

SCHEMA = 2
"""Version of the documents that this version of autoopt writes."""
Json: TypeAlias = Mapping[str, Any]


def schema_of(document: Json) -> int:
    """Return the schema version of a document.

    Raises:
        SystemFailure: a version before the first one. Newer versions are read, without their additional fields.
    """
    version = int(document.get("schema", 1))
    if version < 1:
        raise SystemFailure(f"result document with unknown schema {version}", remedy="store the result again")
    return version


def upgrade_model(model: Json, schema: int) -> Json:
    """Upgrade a model: the source, the best one, or one of the Pareto front."""
    if schema >= SCHEMA:
        return model
    metrics = {}
    for name, value in (model.get("metrics") or {}).items():
        metrics[name] = value["value"] if isinstance(value, Mapping) else value
    return {
        **{name: value for name, value in model.items() if value is not None},
        "metrics": metrics,
        "intervals": _estimates(model.get("intervals") or {}, metrics),
        "ratios": _estimates(model.get("ratios") or {}, {}),
    }


def upgrade_measurement(measured: Json, schema: int) -> Json:
    """Upgrade a measurement summary."""
    if schema >= SCHEMA:
        return measured
    outputs = measured.get("outputs") or {}
    return {**measured, "outputs": {name: _estimates(metrics, {}) for name, metrics in outputs.items()}}


def _estimates(values: Mapping[str, Any], metrics: Mapping[str, float]) -> dict[str, Any]:
    """Estimates by name; `metrics` has the values of those that are given as a pair of bounds."""
    return {name: _estimate(value, metrics.get(name)) for name, value in values.items()}


def _estimate(value: Any, middle: float | None) -> Json:  # noqa: ANN401  documents of any age
    if isinstance(value, Mapping):
        return value
    if isinstance(value, Sequence):
        low, high = value
        return {"value": (low + high) / 2 if middle is None else middle, "low": low, "high": high}
    return {"value": value, "low": value, "high": value}
