"""A warm start: measurements of similar models give chains of a plan their weights and first points."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from autoopt.dag.compiler.chain import Chain
from autoopt.dag.compiler.plan import Learned, Plan
from autoopt.metrics import MEDIAN_LATENCY
from autoopt.model.inspection import Inspection
from autoopt.space import Value

MIN_SIMILARITY: Final = 0.7
"""Less similar models give no examples."""
MAX_LEARNED: Final = 3
"""Largest number of preferred chains, and of their first points together: misleading examples cost this many trials."""
MAX_WEIGHT: Final = 2.0
"""The largest weight that an example gives."""
TRUST_ELSEWHERE: Final = 0.5
"""Weight of an example from another CPU or runtime, relative to one from this machine."""
MAX_CHAINS: Final = 2_000
"""Chains of a plan that are compared with the examples."""


@dataclass(frozen=True)
class Example:
    """A candidate that a finished run measured as certainly better than its source model."""

    model: str
    similarity: float
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
    """The model has the same graph, and the run had the same chains, constraints and budget as this one."""


@dataclass(frozen=True)
class _Match:
    """An example, the chain of a plan that is credited for it, and the example's values that the chain searches."""

    example: Example
    chain: Chain
    values: dict[str, dict[str, Value]]
    untried: int
    """Values of the example that the chain does not search."""

    @property
    def distance(self) -> tuple[int, int, str]:
        return self.untried, len(_pass_names(self.chain) - self.example.passes), self.chain.id


def similarity(a: Inspection, b: Inspection) -> float:
    """Similarity of two models, 0..1: cosine of their operator counts, times the closeness of their weight counts."""
    # Square roots keep the rare operators from vanishing among the frequent ones.
    product = 0.0
    for op in sorted(a.ops & b.ops):
        product += math.sqrt(a.op_counts.get(op, 0) * b.op_counts.get(op, 0))
    norm = math.sqrt(sum(a.op_counts.values()) * sum(b.op_counts.values()))
    if not norm:
        return 0.0
    # A factor of 0.8 for ten times the weights: size matters less than the kinds of operators.
    small, large = sorted((a.parameters + 1, b.parameters + 1))
    return product / norm * math.pow(small / large, 0.1)


def same_graph(a: Inspection, b: Inspection) -> bool:
    """True if two models differ only in the values of their weights, as far as their inspections show."""
    mine = (a.inputs, a.outputs, a.opsets, a.op_counts, a.parameters, a.weight_dtypes)
    return mine == (b.inputs, b.outputs, b.opsets, b.op_counts, b.parameters, b.weight_dtypes)


def warm_started(plan: Plan, examples: Sequence[Example]) -> Plan:
    """Return the plan with a preference for the chains that come closest to the examples.

    A chain is credited only if it has every pass that changed the example's model, and no other lossy pass. Examples of
    the same chain are reported together.
    """
    matches: dict[str, list[_Match]] = {}
    chains = list(plan.chains(MAX_CHAINS)) if examples else []
    for example in sorted(filter(_teaches, examples), key=_precedence):
        match = _closest(example, chains)
        if match is not None and (match.chain.id in matches or len(matches) < MAX_LEARNED):
            matches.setdefault(match.chain.id, []).append(match)
    room = MAX_LEARNED + 1 - len(matches)
    learned: list[Learned] = []
    for group in matches.values():
        learned.append(_learned(group, 1 if learned else room))
    return plan.with_learned(learned)


def _teaches(example: Example) -> bool:
    return example.ratio < 1 and (example.similarity >= MIN_SIMILARITY or example.same_search)


def _precedence(example: Example) -> tuple[object, ...]:
    is_elsewhere = bool(example.elsewhere)
    return (
        not example.same_search,
        is_elsewhere,
        -example.similarity,
        example.ratio,
        example.model,
        sorted(example.passes),
    )


def _closest(example: Example, chains: Sequence[Chain]) -> _Match | None:
    """The chain that is nearest to the example; None if no chain has all of its passes."""
    matches: list[_Match] = []
    for chain in chains:
        if example.passes <= _pass_names(chain) and not _adds_loss(chain, example.passes):
            values, untried = _tried_values(example, chain)
            matches.append(_Match(example, chain, values, untried))
    return min(matches, key=lambda match: match.distance, default=None)


def _pass_names(chain: Chain) -> set[str]:
    return {node.pass_name for node in chain.nodes}


def _adds_loss(chain: Chain, passes: frozenset[str]) -> bool:
    """True if the chain has a lossy pass that is not among `passes`."""
    return any(node.info.tolerance == "lossy" and node.pass_name not in passes for node in chain.nodes)


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


def _learned(group: Sequence[_Match], most: int) -> Learned:
    """The preference that examples of one chain give together, the most similar first, with at most `most` points."""
    first = group[0].example
    points: list[dict[str, dict[str, Value]]] = []
    for match in group:
        if match.values and match.values not in points:
            points.append(match.values)
    trust = TRUST_ELSEWHERE if first.elsewhere else 1.0
    ratios = [match.example.ratio for match in group]
    gain = 1 / max(min(ratios), 1e-3) - 1
    expected = first.ratio if first.same_search else None
    weight = min(MAX_WEIGHT, 1 + trust * first.similarity * gain)
    return Learned(
        chain=group[0].chain.passes,
        # A file that 'autoopt init' wrote has such a weight already.
        weight=round(max(1.0, weight / group[0].chain.weight), 3),
        points=tuple(points[:most]),
        evidence=_evidence([match.example for match in group]),
        expected=expected,
    )


def _evidence(examples: Sequence[Example]) -> str:
    """Say what was measured, where, and on which models; equal settings are reported together."""
    groups: dict[str, list[Example]] = {}
    for example in examples:
        groups.setdefault(_settings(example), []).append(example)
    return "; ".join(_measured(settings, group) for settings, group in groups.items())


def _settings(example: Example) -> str:
    """The passes of an example with the values that were searched."""
    values: list[str] = []
    for name, params in sorted(example.values.items()):
        if name in example.passes:
            values += [f"{name}.{param}={value}" for param, value in sorted(params.items())]
    text = ", ".join(sorted(example.passes))
    if values:
        text += f" ({', '.join(values)})"
    return text


def _measured(settings: str, examples: Sequence[Example]) -> str:
    """`static_quantization gave 0.45 to 0.60 of the source's latency_p50 on 4 similar models (a, b, c, d)`."""
    first = examples[0]
    low, high = min(each.ratio for each in examples), max(each.ratio for each in examples)
    ratio = f"{low:.2f}"
    if f"{high:.2f}" != ratio:
        ratio += f" to {high:.2f}"
    models = list(dict.fromkeys(example.model for example in examples))
    alike = "same graph" if first.same_search else f"similarity {first.similarity:.2f}"
    place = f"{models[0]} ({alike})"
    if len(models) > 1:
        place = f"{len(models)} similar models ({', '.join(models)})"
    text = f"{settings} gave {ratio} of the source's {first.metric} on {place}"
    elsewhere = sorted({example.elsewhere for example in examples if example.elsewhere})
    if elsewhere:
        text += f", measured with {'; '.join(elsewhere)}"
    return text
