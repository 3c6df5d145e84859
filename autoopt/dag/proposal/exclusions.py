"""The nodes, values and chains that a model, its target and its data rule out of a proposal, with the reasons.

The rules are rows of `templates.toml`.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping

from autoopt.dag.compiler.pruning import Reason
from autoopt.dag.graph.priors import Prior, Scope, Values
from autoopt.dag.proposal.inputs import ProposalInputs, conditions, hold, node_conditions, words
from autoopt.dag.proposal.templates import TABLES, TEMPLATES, Template
from autoopt.option_names import option
from autoopt.space import Value, same
from autoopt.spec.targets import TargetSpec


def ruled_out(node: str, inputs: ProposalInputs, target: TargetSpec, level: int) -> Reason | None:
    """The reason why no chain with this node is worth trying, beyond the pass's own reasons; or None."""
    kind = "lossy" if TEMPLATES[node].lossy else ""
    facts = conditions(inputs, target, level) | node_conditions(node, inputs, target)
    for row in TABLES.excluded:
        if not {node, kind}.isdisjoint(row.nodes) and hold(row.when, facts):
            return Reason(row.rule, row.reason.format_map(words(node, inputs, target)))
    return None


def value_cuts(
    nodes: Mapping[str, Template],
    fixed: Mapping[str, Mapping[str, Value]],
    inputs: ProposalInputs,
    target: TargetSpec,
    level: int,
) -> Iterator[Prior]:
    """Priors for the values of the templates that are not tried at a level, with the reasons.

    `fixed`: node id -> parameters that the target fixes.
    """
    facts = conditions(inputs, target, level)
    for node, template in nodes.items():
        for name, values in template.search.items():
            if name in fixed.get(node, {}):
                continue
            for value, lowest in values:
                reason = _value_reason(node, name, value, inputs, facts)
                if reason:
                    reason = reason.format_map(words(node, inputs, target))
                elif lowest > level:
                    reason = f"needs {option('level', lowest)}"
                if reason:
                    yield Prior("forbid", Scope(), {node: {name: value}}, reason=reason, origin="library")


def _value_reason(node: str, name: str, value: Value, inputs: ProposalInputs, facts: Collection[str]) -> str:
    """The reason why a value of a template is not tried, or ""."""
    for row in TABLES.cuts:
        cut = row.values.get(name, ())
        if cut == "layers":
            is_cut = isinstance(value, int) and value >= inputs.layer_count
        else:
            is_cut = any(same(value, other) for other in cut)
        if is_cut and node in row.nodes and hold(row.when, facts):
            return row.reason
    return ""


def untried_combinations(nodes: Mapping[str, Template]) -> Iterator[Prior]:
    """Priors for the combinations of these nodes and their values that no model gains by."""
    lossy = [node for node, template in nodes.items() if template.lossy]
    if "graph" in nodes:
        for node in lossy:
            yield _forbidden(f"{node}, graph: onnxruntime already does this fusion at load time", (node, "graph"))
    for needed, what in {"dequantize": "already quantized", "float64": "in float64"}.items():
        for node in lossy:
            if needed in nodes and node not in (needed, "dequantize", "unsigned"):
                yield _forbidden(f"the model is {what}", (node,), without=(needed,))
    for row in TABLES.combinations:
        ((node, cut),) = row.values.items()
        if node not in nodes or not nodes.keys() >= set(row.nodes):
            continue
        for values in itertools.product(*cut.values()):
            stated = dict(zip(cut, (None if value == "default" else value for value in values), strict=True))
            if all(_searches(nodes[node], name, value) for name, value in stated.items()):
                yield _forbidden(row.reason, row.nodes, {node: stated})


def _searches(template: Template, name: str, value: Value) -> bool:
    """Tell if a template searches a value of a parameter."""
    return any(same(value, searched) for searched, _ in template.search.get(name, ()))


def _forbidden(
    reason: str, nodes: Iterable[str] = (), values: Values | None = None, without: Iterable[str] = ()
) -> Prior:
    """Forbid chains with all of `nodes`, or these values in them; every chain without `nodes`."""
    scope = Scope(nodes=frozenset(nodes), without=frozenset(without)) if nodes else Scope()
    return Prior("forbid", scope, values or {}, reason=reason, origin="library")
