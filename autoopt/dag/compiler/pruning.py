"""Why a chain is pruned or a pass is warned about, from what is known of one pass, its target and its model."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from autoopt.model.inspection import Inspection
from autoopt.registry import PassInfo
from autoopt.target import Accelerator

Rule: TypeAlias = Literal[
    "unavailable", "accelerator", "runtime", "inspection", "level", "no-data", "learned", "empty",
    "conflicts", "requires", "cut", "forbid", "require", "memory",
]  # fmt: skip


@dataclass(frozen=True)
class Reason:
    """The rule that prunes, and what to tell the reader."""

    rule: Rule
    text: str


Learned: TypeAlias = Callable[[str, PassInfo], str | None]
"""(node id, pass) -> why experience with similar models speaks against it, or None."""

_LEVEL: Final = ("lossless passes", "passes that are equal up to rounding", "passes that need no calibration data")


@dataclass(frozen=True)
class Facts:
    """What planning knows beside the graph itself."""

    accelerator: Accelerator = field(default_factory=Accelerator)
    inspection: Inspection | None = None
    """Of the source model; None where there is no model yet."""
    installed_eps: Collection[str] | None = None
    """Execution providers of the installed runtime; None: not asked."""
    has_calibration: bool | None = None
    """Whether there is calibration data; None: not known."""
    level: int | None = None
    proposed: bool = False
    """Whether autoopt proposed the graph itself: level, missing data and experience cut only such graphs."""
    learned: Learned | None = field(default=None, compare=False)
    ruled_out: Mapping[str, Reason] = field(default_factory=dict)
    """Node id -> why the proposal itself keeps no chain with it, though the node is shown."""


def first_reason(node: str, info: PassInfo, facts: Facts) -> Reason | None:
    """The first reason for which every chain with this node is pruned, or None."""
    model, prunes = check_model(info, facts)
    soft = soft_reasons(node, info, facts) if facts.proposed else ()
    own = facts.ruled_out.get(node)
    found = (check_runtime(facts), check_pass(info, facts), own, model if prunes else None, *soft)
    return next((reason for reason in found if reason is not None), None)


def check_pass(info: PassInfo, facts: Facts) -> Reason | None:
    """Why the pass cannot run at all on this machine or target, or None."""
    if not info.available:
        return Reason("unavailable", f"pass {info.name} is not available: {info.missing}")
    provider = facts.accelerator.execution_provider
    if info.accelerators and provider not in info.accelerators:
        return Reason("accelerator", f"pass {info.name} is for {', '.join(info.accelerators)}, not for {provider}")
    return None


def check_runtime(facts: Facts) -> Reason | None:
    """Why nothing can be measured on this target, or None."""
    provider = facts.accelerator.execution_provider
    if facts.installed_eps is not None and provider not in facts.installed_eps:
        have = ", ".join(sorted(facts.installed_eps)) or "none"
        return Reason("runtime", f"{provider} is not in the installed runtime (it has {have})")
    return None


def check_model(info: PassInfo, facts: Facts) -> tuple[Reason | None, bool]:
    """Why the pass has nothing to do on this model, and whether that prunes.

    It always prunes proposed graphs. In a graph of the user it prunes where the chain is about the pass (it is lossy);
    any other pass that finds nothing is skipped at run time, and the rest of its chain is worth trying.
    """
    model = facts.inspection
    if model is None or not info.needs_ops or set(info.needs_ops) & model.ops:
        return None, False
    reason = Reason("inspection", f"pass {info.name} needs one of {', '.join(info.needs_ops)}; the model has none")
    return reason, facts.proposed or info.tolerance == "lossy"


def soft_reasons(node: str, info: PassInfo, facts: Facts) -> list[Reason]:
    """Reasons that prune only graphs that autoopt proposed itself; elsewhere they warn."""
    found: list[Reason] = []
    if facts.level is not None and _level(info) > facts.level:
        found.append(Reason("level", f"level {facts.level} takes only {_LEVEL[facts.level]}, not {info.name}"))
    if info.needs_data and facts.has_calibration is False:
        found.append(Reason("no-data", f"pass {info.name} needs calibration data and there is none"))
    if facts.learned is not None:
        text = facts.learned(node, info)
        if text:
            found.append(Reason("learned", text))
    return found


def _level(info: PassInfo) -> int:
    """The lowest level that takes the pass."""
    if info.tolerance == "lossy":
        return 3 if info.needs_data else 2
    return 1 if info.tolerance == "equal" and not info.session_only else 0
