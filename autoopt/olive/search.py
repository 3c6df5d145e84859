"""Olive's search strategy as `search:`."""

from __future__ import annotations

from typing import Final

from autoopt.json_codec import JsonValue
from autoopt.olive.config import OliveConfig, Section
from autoopt.olive.remarks import Remarks
from autoopt.spec.source import Place

_PLACE: Final[Place] = ("search_strategy",)
_SAMPLERS: Final[dict[str, dict[str, JsonValue]]] = {
    "tpe": {"sampler": "tpe"},
    "random": {"strategy": "per-chain", "sampler": "random"},
    "sequential": {"strategy": "per-chain", "sampler": "exhaustive"},
    "exhaustive": {"strategy": "per-chain", "sampler": "exhaustive"},
}
_TRIALS: Final = ("max_samples", "num_samples", "max_iter")
_NOT_NEEDED: Final = {
    "output_model_num": "every model stays in the store, and 'autoopt export RUN TRIAL' writes any of them",
    "include_pass_params": "the parameters that a pass does not set are searched as 'search: all' of its node says",
    "multivariate": "the sampler decides itself",
    "group": "the sampler decides itself",
}


def search_settings(config: OliveConfig, remarks: Remarks) -> dict[str, JsonValue]:
    """Return the `search:` section; empty if nothing is searched."""
    strategy = config.search
    if strategy is None:
        return {}
    sampler = str(strategy.get("sampler") or strategy.get("search_algorithm") or "sequential").lower()
    if sampler not in _SAMPLERS:
        remarks.add(_PLACE, f"no sampler {sampler!r}", "autoopt's default searches; see docs/searching.md")
    settings = dict(_SAMPLERS.get(sampler, {}))
    order = str(strategy.get("execution_order") or "joint")
    if order != "joint":
        settings["strategy"] = "per-chain"
        settings["order"] = order
    settings.update(_budget(strategy))
    if strategy.get("seed") is not None:
        settings["seed"] = strategy["seed"]
    if strategy.get("stop_when_goals_met"):
        settings["stop_when_goals_met"] = True
    for name, remedy in _NOT_NEEDED.items():
        if name in strategy:
            remarks.add((*_PLACE, name), "is not needed", remedy)
    return settings


def _budget(strategy: Section) -> dict[str, JsonValue]:
    budget: dict[str, JsonValue] = {}
    counts = [value for name in _TRIALS if isinstance(value := strategy.get(name), int) and value > 0]
    if counts:
        budget["trials"] = min(counts)
    seconds = strategy.get("max_time")
    if isinstance(seconds, int | float) and seconds > 0:
        budget["minutes"] = round(seconds / 60, 3)
    return budget
