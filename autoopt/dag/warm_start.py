"""A warm start: the best candidate of an earlier run on the same graph becomes the first point of a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from autoopt.dag.compiler.chain import Chain
from autoopt.dag.compiler.plan import Learned, Plan
from autoopt.metrics import MEDIAN_LATENCY
from autoopt.space import Value

MAX_CHAINS: Final = 2_000
"""Chains of a plan that are compared with the example."""


@dataclass(frozen=True)
class Example:
    """A candidate that a finished run on the same graph measured as better than its source model."""

    model: str
    passes: frozenset[str]
    """Names of the passes that changed the model."""
    values: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)
    """Pass name -> parameter -> value that was searched."""
    ratio: float = 1.0
    """Of `metric`, candidate / source, or source / candidate where more is better: a gain is below 1."""
    metric: str = MEDIAN_LATENCY
    elsewhere: str = ""
    """CPU, runtime or threads that it was measured with, if they differ from this run's."""
    same_search: bool = False
    """The run had the same chains, constraints and budget as this one."""


def known_point(plan: Plan, example: Example) -> Learned | None:
    """The point of a plan that comes closest to an example; None if no chain fits.

    A chain fits if it has every pass that changed the example's model, and no other lossy pass.
    """
    matches: list[tuple[tuple[int, int, str], Learned]] = []
    for chain in plan.chains(MAX_CHAINS):
        lossy = {node.pass_name for node in chain.nodes if node.info.tolerance == "lossy"}
        if not example.passes <= _pass_names(chain) or not lossy <= example.passes:
            continue
        values, untried = _tried_values(example, chain)
        point = plan.first_point(chain, values)
        if point is not None:
            expected = example.ratio if example.same_search else None
            learned = Learned(chain.id, chain.passes, point, _evidence(example), expected)
            matches.append(((untried, len(_pass_names(chain) - example.passes), chain.id), learned))
    if not matches:
        return None
    return min(matches, key=lambda match: match[0])[1]


def _pass_names(chain: Chain) -> set[str]:
    return {node.pass_name for node in chain.nodes}


def _tried_values(example: Example, chain: Chain) -> tuple[dict[str, dict[str, Value]], int]:
    """The example's values by node, those that the chain searches, and the number of the others."""
    tried: dict[str, dict[str, Value]] = {}
    untried = 0
    for node in chain.nodes:
        for name, value in example.values.get(node.pass_name, {}).items():
            searched = node.space.search.get(name)
            if searched is not None and searched.offers(value):
                tried.setdefault(node.id, {})[name] = value
            else:
                untried += 1
    return tried, untried


def settings_text(passes: Sequence[str], values: Mapping[str, Mapping[str, Value]]) -> str:
    """Passes with the values that were searched: `simplify, static_quantization (per_channel=True)`."""
    texts: list[str] = []
    for name in passes:
        settings = [f"{param}={value}" for param, value in sorted(values.get(name, {}).items())]
        texts.append(f"{name} ({', '.join(settings)})" if settings else name)
    return ", ".join(texts)


def _evidence(example: Example) -> str:
    """`static_quantization gave 0.45 of the source's latency_p50 on resnet (same graph)`."""
    text = settings_text(sorted(example.passes), example.values)
    text += f" gave {example.ratio:.2f} of the source's {example.metric} on {example.model} (same graph)"
    if example.elsewhere:
        text += f", measured with {example.elsewhere}"
    return text
