"""Older result documents, brought to the current schema.

Schema 1 (documents without a `schema` field) wrote the intervals of the source model as `[low, high]`, and some
estimates as plain numbers. Schema 2 writes every estimate as `{value, low, high}`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from autoopt.errors import SystemFailure
from autoopt.json_codec import without_nulls

SCHEMA = 2
"""Version of the documents that this version of autoopt writes."""
Json: TypeAlias = Mapping[str, Any]


def upgraded(document: Json) -> Json:
    """Bring the document of a run, of one target or of one model of a sweep to the current schema.

    Documents of newer versions stay as they are: readers ignore their additional fields.

    Raises:
        SystemFailure: a version before the first one.
    """
    version = int(document.get("schema", 1))
    if version < 1:
        raise SystemFailure(f"result document with unknown schema {version}", remedy="store the result again")
    if version >= SCHEMA:
        return document
    upgrade = {**without_nulls(document), "schema": SCHEMA}
    for name in ("baseline", "best", "last_best"):
        if name in upgrade:
            upgrade[name] = _model(upgrade[name])
    upgrade["pareto"] = list(map(_model, upgrade.get("pareto", ())))
    if "best_single" in upgrade:
        targets = {name: _model(model) for name, model in upgrade["best_single"]["targets"].items()}
        upgrade["best_single"] = {**upgrade["best_single"], "targets": targets}
    return upgrade


def _model(model: Json) -> Json:
    """Upgrade a model: the source, the best one, or one of the Pareto front."""
    upgrade = without_nulls(model)
    metrics = upgrade["metrics"] = dict(upgrade.get("metrics", {}))
    for name, value in metrics.items():
        if isinstance(value, Mapping):
            metrics[name] = value["value"]
    upgrade["intervals"] = _estimates(upgrade.get("intervals", {}), metrics)
    upgrade["ratios"] = _estimates(upgrade.get("ratios", {}), {})
    if "measured" in upgrade:
        outputs = upgrade["measured"].get("outputs") or {}
        outputs = {name: _estimates(values, {}) for name, values in outputs.items()}
        upgrade["measured"] = {**upgrade["measured"], "outputs": outputs}
    return upgrade


def _estimates(values: Json, metrics: Mapping[str, float]) -> dict[str, Json]:
    """Estimates by name; `metrics` has the values of those that are given as a pair of bounds."""
    estimates: dict[str, Json] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            estimates[name] = value
        elif isinstance(value, Sequence):
            low, high = value
            estimates[name] = {"value": metrics.get(name, (low + high) / 2), "low": low, "high": high}
        else:
            estimates[name] = {"value": value, "low": value, "high": value}
    return estimates
