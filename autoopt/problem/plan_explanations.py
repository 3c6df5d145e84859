"""A plan in the few lines that a run prints before its trials; `autoopt plan` shows all reasons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from autoopt.dag.compiler.plan import Learned, Plan
from autoopt.report.words.formatting import plural
from autoopt.report.words.steps import ARROW, steps_text

CHAIN_WIDTH: Final = 30
"""Characters of a chain in a line."""


def explanations(plan: Plan) -> list[str]:
    """A line each for the values that a proposal tries, its decisions that matter to users, and earlier lessons."""
    lines: list[str] = []
    tried = [decision.tried for decision in plan.decisions if decision.tried]
    if tried:
        lines.append(f"trying {', '.join(tried)}")
    shown = [decision for decision in plan.decisions if not decision.tried and not decision.is_detail]
    lines += [f"{decision.what}: {decision.why}" for decision in shown]
    if plan.learned:
        lines.append(_lesson(plan.learned))
    return lines


def _lesson(learned: Sequence[Learned]) -> str:
    """The points that earlier runs put first."""
    first = steps_text(ARROW.join(learned[0].chain), {}, CHAIN_WIDTH)
    if len(learned) > 1:
        first += f" and {plural(len(learned) - 1, 'other point')}"
    source = "on other models"
    if learned[0].expected is not None:
        source = "in an earlier run of the same graph"
    return f"starting with {first}, the best {source} ('autoopt --verbose plan' says why)"
