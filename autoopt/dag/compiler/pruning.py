"""Reasons to prune a chain or to warn about a pass, from the facts about one pass, its target and its model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from autoopt.model.inspection import Inspection
from autoopt.option_names import option
from autoopt.registry import PassInfo
from autoopt.target import Accelerator

Rule: TypeAlias = Literal[
    "unavailable", "accelerator", "runtime", "inspection", "level", "no-data", "empty",
    "conflicts", "requires", "cut", "forbid", "require", "memory",
]  # fmt: skip

_ALLOWED: Final = (
    "lossless passes",
    "passes that change results at most by rounding",
    "passes that need no calibration data",
)
"""By level; level 3 allows all passes."""


@dataclass(frozen=True)
class Reason:
    """The rule that prunes, and the text for the reader."""

    rule: Rule
    text: str


@dataclass(frozen=True)
class Facts:
    """Facts about target, model and data that planning takes into account; None means unknown."""

    accelerator: Accelerator = field(default_factory=Accelerator)
    inspection: Inspection | None = None
    """Of the source model."""
    installed_eps: Mapping[str, str] | None = None
    """Execution providers of the installed runtime, each with the reason why it cannot be used, empty if it can."""
    has_calibration: bool | None = None
    """True if there is calibration data."""
    level: int | None = None
    proposed: bool = False
    """True if autoopt proposed the graph itself: level and missing data prune only such graphs."""
    ruled_out: Mapping[str, Reason] = field(default_factory=dict)
    """Node id -> the reason why the proposal keeps no chain with it, though it shows the node."""


def first_reason(node: str, info: PassInfo, facts: Facts) -> Reason | None:
    """The first reason to prune every chain with this node, or None."""
    reason = check_runtime(facts) or check_pass(info, facts) or facts.ruled_out.get(node)
    if reason is None and prunes_idle(info, facts):
        reason = check_model(info, facts)
    if reason is None and facts.proposed:
        reason = next(iter(soft_reasons(info, facts)), None)
    return reason


def check_pass(info: PassInfo, facts: Facts) -> Reason | None:
    """The reason why the pass cannot run on this machine or target at all, or None."""
    if not info.available:
        return Reason("unavailable", f"pass {info.name} is not available: {info.missing}")
    provider = facts.accelerator.execution_provider
    if info.accelerators and provider not in info.accelerators:
        return Reason("accelerator", f"pass {info.name} is for {', '.join(info.accelerators)}, not for {provider}")
    return None


def check_runtime(facts: Facts) -> Reason | None:
    """The reason why nothing can be measured on this target, or None."""
    provider = facts.accelerator.execution_provider
    if facts.installed_eps is None:
        return None
    installed = ", ".join(sorted(facts.installed_eps)) or "none"
    reason = facts.installed_eps.get(provider, f"is not in the installed runtime (it has {installed})")
    return Reason("runtime", f"{provider} {reason}") if reason else None


def check_model(info: PassInfo, facts: Facts) -> Reason | None:
    """The reason why the pass has nothing to do on this model, or None."""
    model = facts.inspection
    if model is None or not info.needs_ops or set(info.needs_ops) & (model.ops | model.traits):
        return None
    operators = ", ".join(info.needs_ops)
    if len(info.needs_ops) > 1:
        operators = f"one of {operators}"
    return Reason("inspection", f"needs {operators}; the model has none")


def prunes_idle(info: PassInfo, facts: Facts) -> bool:
    """True if a chain is pruned for a pass that has nothing to do on the model.

    In a graph of the user only a lossy pass prunes, because its chain is about that pass. Any other idle pass is
    skipped at run time, and the rest of its chain is worth trying.
    """
    return facts.proposed or info.tolerance == "lossy"


def soft_reasons(info: PassInfo, facts: Facts) -> list[Reason]:
    """Reasons that prune only proposed graphs; in a graph of the user they are warnings."""
    reasons: list[Reason] = []
    lowest = {"lossy": 2 + info.needs_data, "equal": 1 - info.session_only}.get(info.tolerance, 0)
    if facts.level is not None and lowest > facts.level:
        reasons.append(Reason("level", f"level {facts.level} allows only {_ALLOWED[facts.level]}"))
    if info.needs_data and facts.has_calibration is False:
        reasons.append(Reason("no-data", f"needs calibration data; add {option('data', of='FILE')}"))
    # An earlier pass of a chain may remove such operators.
    if facts.inspection is not None and (refused := sorted(facts.inspection.ops & set(info.refuses_ops))):
        reasons.append(Reason("inspection", f"cannot take {', '.join(refused)}, which the model has"))
    return reasons
