"""A proposal as a dag.yaml to edit: its remaining nodes and values, with comments that give the reasons."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Final

from autoopt.dag.compiler.plan import Plan
from autoopt.dag.compiler.priors import Prior, Values
from autoopt.dag.proposal.propose import Proposal, target_fields
from autoopt.dag.proposal.templates import TEMPLATES
from autoopt.errors import one_line
from autoopt.json_codec import JsonValue
from autoopt.metrics import MEDIAN_LATENCY, Constraint, Objective
from autoopt.space import Value, matches, same, value_key

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*\Z")
_SURROGATES: Final = re.compile(r"\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}")
LATENCY: Final = Objective(MEDIAN_LATENCY, "minimize")
MAX_CHAINS: Final = 2_000
"""Chains of a plan that are searched for the ones to begin with."""
_WORDS: Final = frozenset(("true", "false", "null", "yes", "no", "on", "off", "y", "n"))
"""Plain text that YAML reads as something else."""


def yaml_text(
    proposal: Proposal,
    plan: Plan,
    model: JsonValue,
    data: Mapping[str, JsonValue],
    objectives: Sequence[Objective] = (),
    constraints: Sequence[Constraint] | None = None,
) -> str:
    """The text of a dag.yaml with the chains and points that are left of a proposal.

    `model` and `data` are paths or configurations to write into the file. Without constraints, a run adds its own.
    """
    spec = proposal.spec
    stages = list(_remaining_stages(proposal))
    nodes = [node for stage in stages for node in stage if node is not None]
    lines = ["# Proposed by autoopt for this model; edit it as you like. `autoopt plan` shows what it means."]
    lines += [f"# {one_line(f'{decision.what}: {decision.why}')}" for decision in plan.decisions]
    lines += [f"name: {spec.name}", f"model: {flow(model)}"]
    if data:
        lines += [*_state_comment(data.get("evaluation")), f"data: {flow(data)}"]
    if spec.targets:
        lines += ["targets:", *(f"  - {flow(target_fields(target))}" for target in spec.targets)]
    else:
        lines.append(f"target: {flow(target_fields(spec.all_targets[0]))}")
    lines += ["", "passes:                                    # node id -> pass and parameters"]
    lines += itertools.chain.from_iterable(_node(proposal, node) for node in nodes)
    lines += _section('stages:                                    # one of each row in this order, ~ is "skip"', stages)
    lines += _section("forbid:", _excluded(proposal, nodes))
    lines += _section(
        "prefer:                                    # tried first",
        itertools.chain(_learned(proposal, plan), _first(proposal, plan)),
    )
    lines += ["", f"objectives: {flow(list(map(_fields, objectives or [LATENCY])))}"]
    lines += _constraints(constraints, nodes)
    search = spec.search.model_dump(include={"trials", "minutes"}, exclude_none=True)
    return "\n".join([*lines, f"search: {flow(search)}"]) + "\n"


def _remaining_stages(proposal: Proposal) -> Iterator[list[str | None]]:
    for stage in proposal.spec.stages or ():
        remaining = [node for node in stage if node not in proposal.reasons]
        if remaining != [None]:
            yield remaining


def _constraints(constraints: Sequence[Constraint] | None, nodes: Sequence[str]) -> Iterator[str]:
    if constraints is not None:
        yield f"constraints: {flow(list(map(_fields, constraints)))}"
    elif any(TEMPLATES[node].lossy for node in nodes):
        default = "on accuracy if there are labels, else on agreement with the source model"
        yield f"# constraints: [...]                        # by default autoopt adds one {default}"


def _state_comment(evaluation: JsonValue) -> Iterator[str]:
    """Explain the fields of recurrent state."""
    if not isinstance(evaluation, Mapping) or not evaluation.get("state"):
        return
    yield "# Items follow each other: `state` feeds each model's own outputs back to its inputs, as in use. Without it,"
    yield "# each model gets the source's states from the file, and its errors do not add up."
    if evaluation.get("starts"):
        yield "# `starts`: items that begin a sequence, with the state in the file."


def _fields(record: Objective | Constraint) -> JsonValue:
    """The fields of an objective or constraint that are not the default."""
    written: dict[str, JsonValue] = {}
    for field in fields(record):
        value = getattr(record, field.name)
        if value != field.default:
            written[field.name] = value
    return written


def document_yaml(dag: Mapping[str, JsonValue]) -> str:
    """The text of a dag.yaml with these fields: a line for each node, stage and chain, and for each other field."""
    lines = []
    for name, content in dag.items():
        if name == "passes" and isinstance(content, Mapping):
            lines += ["passes:", *(f"  {node}: {flow(fields)}" for node, fields in content.items())]
        elif name in ("stages", "chains") and isinstance(content, Sequence):
            lines += [f"{name}:", *(f"  - {flow(item)}" for item in content)]
        else:
            lines.append(f"{name}: {flow(content)}")
    return "\n".join(lines) + "\n"


def flow(value: JsonValue) -> str:
    """A JSON value in YAML's one-line form, with quotes only if they are needed."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{flow(name)}: {flow(item)}" for name, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(flow, value)) + "]"
    if value is None:
        return "~"
    if isinstance(value, str) and _PLAIN.match(value) and value.lower() not in _WORDS:
        return value
    text = json.dumps(value, ensure_ascii=True)
    # JSON writes a character beyond 16 bits as two escapes, which YAML would read as two characters.
    return _SURROGATES.sub(lambda found: f"\\U{ord(json.loads(chr(34) + found[0] + chr(34))):08x}", text)


def _section(title: str, rows: Iterable[JsonValue]) -> list[str]:
    lines = [f"  - {flow(row)}" for row in rows]
    if not lines:
        return []
    return ["", title, *lines]


def _node(proposal: Proposal, node: str) -> Iterator[str]:
    """The lines of a node: comments on its purpose and on values that are not tried, then the node itself."""
    item = proposal.spec.passes[node]
    yield f"  # {TEMPLATES[node].summary}"
    for name, value, reason in _cut_values(proposal, node):
        yield f"  #   without {name} {flow(value)}: {one_line(reason)}"
    content: dict[str, JsonValue] = {"pass": item.pass_name}
    assert isinstance(item.params, Mapping), "a proposal lists its parameters"
    params: dict[str, JsonValue] = dict(item.params)
    for name, remaining in _remaining_values(proposal, node).items():
        params[name] = {"search": remaining}
        if len(remaining) == 1:
            params[name] = remaining[0]
    if params:
        content["params"] = params
    yield f"  {node}: {flow(content)}"


def _remaining_values(proposal: Proposal, node: str) -> dict[str, list[JsonValue]]:
    """Searched parameter -> the values that are tried."""
    params = proposal.spec.passes[node].params
    excluded: set[tuple[str, Hashable]] = set()
    for name, value, _ in _cut_values(proposal, node):
        excluded.add((name, value_key(value)))
    remaining: dict[str, list[JsonValue]] = {}
    assert isinstance(params, Mapping), "a proposal lists its parameters"
    for name, param in params.items():
        searched = param.get("search") if isinstance(param, dict) else None
        if isinstance(searched, list):
            remaining[name] = [value for value in searched if (name, value_key(value)) not in excluded]
    return remaining


def _cut_values(proposal: Proposal, node: str) -> Iterator[tuple[str, Value, str]]:
    """(parameter, value, reason) of every value that is not tried."""
    for prior in proposal.priors:
        if prior.kind == "forbid" and _is_one_value(prior):
            for name, value in prior.values.get(node, {}).items():
                yield name, value, prior.reason


def _excluded(proposal: Proposal, nodes: Sequence[str]) -> Iterator[JsonValue]:
    """Rows of `forbid`: chains that are not tried, with any values or with these."""
    for prior in proposal.priors:
        if prior.kind != "forbid" or _is_one_value(prior):
            continue
        scope = (prior.scope.nodes or frozenset()) | set(prior.values)
        if not scope <= set(nodes) or _is_cut_anyway(proposal, prior):
            continue
        values = _searched_values(proposal, prior.values)
        row: dict[str, JsonValue] = {
            "nodes": sorted(scope, key=nodes.index) if prior.scope.nodes or not values else [],
            "without": sorted(prior.scope.without),
            "values": values,
        }
        yield {**{name: value for name, value in row.items() if value}, "reason": prior.reason}


def _is_cut_anyway(proposal: Proposal, prior: Prior) -> bool:
    """True if no chain has one of the prior's values."""
    for node, values in prior.values.items():
        for name, value, _ in _cut_values(proposal, node):
            if name in values and same(values[name], value):
                return True
    return False


def _is_one_value(prior: Prior) -> bool:
    """True if the prior excludes one value of one parameter from every chain."""
    return prior.scope.everywhere and sum(map(len, prior.values.values())) == 1


def _first(proposal: Proposal, plan: Plan) -> Iterator[JsonValue]:
    """Rows of `prefer`: the values that the search begins with, if the plan has them."""
    chains = {chain.passes: chain for chain in plan.chains(MAX_CHAINS) if chain.prior}
    for prior in proposal.priors:
        if prior.kind == "prefer" and prior.scope.chain in chains:
            points = chains[prior.scope.chain].prior
            values = _searched_values(proposal, prior.values)
            if not prior.values:
                yield {"chain": list(prior.scope.chain), "weight": prior.weight, "reason": prior.reason}
            elif values and any(matches(point, prior.values) for point in points):
                yield {"chain": list(prior.scope.chain), "values": values}


def _searched_values(proposal: Proposal, stated: Values) -> dict[str, JsonValue]:
    """Values without those that the file fixes."""
    values: dict[str, JsonValue] = {}
    for node, params in stated.items():
        remaining = _remaining_values(proposal, node)
        searched = {name: value for name, value in params.items() if len(remaining[name]) > 1}
        if searched:
            values[node] = searched
    return values


def _learned(proposal: Proposal, plan: Plan) -> Iterator[JsonValue]:
    """Rows of `prefer`: learned points that are not among those of the proposal, which a run puts in order itself."""
    own = {chain.id: chain.prior for chain in plan.chains(MAX_CHAINS)}
    for learned in plan.learned:
        values = _searched_values(proposal, learned.point)
        if values and learned.point not in own.get(learned.chain_id, ()):
            yield {"chain": list(learned.chain), "values": values, "reason": learned.evidence}
