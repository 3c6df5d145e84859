"""A proposal as a dag.yaml to edit: what is left of it, with comments that say why and what was left out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain as joined
from typing import Any, Final

from autoopt.dag.compiler.plan import Plan
from autoopt.dag.graph.node_spaces import same
from autoopt.dag.proposal.propose import Proposal
from autoopt.dag.proposal.templates import TEMPLATES
from autoopt.errors import one_line

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*\Z")
_WORDS: Final = frozenset(("true", "false", "null", "yes", "no", "on", "off", "y", "n"))


def yaml_text(proposal: Proposal, plan: Plan, model: str, data: Mapping[str, str]) -> str:
    """The text of a dag.yaml that gives the chains and points which are left of a proposal.

    Args:
        model, data: paths as they are to be written; `data` by its use (`evaluation`, `calibration`).
    """
    spec = proposal.spec
    stages = [_left(stage, proposal) for stage in spec.stages or ()]
    stages = [stage for stage in stages if stage != [None]]
    kept = [node for stage in stages for node in stage if node is not None]
    target = spec.all_targets[0].model_dump(include={"device", "execution_provider", "memory"}, exclude_none=True)
    lines = [
        "# Proposed by autoopt for this model; edit it as you like. `autoopt plan` shows what it means.",
        *(f"# {one_line(f'{d.what}: {d.why}')}" for d in plan.decisions),
        f"name: {spec.name}",
        f"model: {flow(model)}",
        *([f"data: {flow(dict(data))}"] if data else []),
        f"target: {flow(target)}",
        "",
        "passes:                                    # node id -> pass and parameters",
        *(line for node in kept for line in _node(proposal, plan, node)),
        "",
        'stages:                                    # one of each row in this order, ~ is "skip"',
        *(f"  - {flow(stage)}" for stage in stages),
        *joined(_forbidden(proposal, kept), _preferred(proposal)),
        "",
        "objectives: [{metric: latency_p50, goal: minimize}]",
        *_quality(proposal),
        f"search: {flow(spec.search.model_dump(include={'trials', 'minutes'}, exclude_none=True))}",
    ]
    return "\n".join(lines) + "\n"


def flow(value: Any) -> str:
    """A JSON value in YAML's one-line form, with quotes only where they are needed."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{flow(k)}: {flow(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(flow(v) for v in value) + "]"
    if value is None:
        return "~"
    if isinstance(value, str) and _PLAIN.match(value) and value.lower() not in _WORDS:
        return value
    return json.dumps(value, ensure_ascii=True)


def _left(stage: Sequence[str | None], proposal: Proposal) -> list[str | None]:
    return [node for node in stage if node is None or node not in proposal.reasons]


def _node(proposal: Proposal, plan: Plan, node: str) -> Iterator[str]:
    """One node: a comment on what it is for and on values left out, and its line."""
    written = proposal.spec.passes[node]
    cut = list(_values_cut(proposal, node))
    params: dict[str, Any] = {}
    assert isinstance(written.params, Mapping)
    for name, value in written.params.items():
        if isinstance(value, Mapping) and "search" in value:
            left = [v for v in value["search"] if not any(name == n and same(v, c) for n, c, _ in cut)]
            value = {"search": left} if len(left) > 1 else left[0]
        params[name] = value
    yield f"  # {TEMPLATES[node].summary}"
    for name, value, reason in cut:
        yield f"  #   without {name} {flow(value)}: {one_line(reason)}"
    yield f"  {node}: " + flow({"pass": written.pass_name, **({"params": params} if params else {})})


def _values_cut(proposal: Proposal, node: str) -> Iterator[tuple[str, Any, str]]:
    """(parameter, value, reason) of every value that is left out."""
    for prior in proposal.priors:
        if prior.kind == "forbid":
            for name, value in prior.values.get(node, {}).items():
                yield name, value, prior.reason


def _forbidden(proposal: Proposal, kept: Sequence[str]) -> Iterator[str]:
    """Chains that are left out whatever the values."""
    rows = []
    for prior in proposal.priors:
        nodes = prior.scope.nodes
        if prior.kind == "forbid" and nodes is not None and nodes <= set(kept):
            rows.append(f"  - {flow({'nodes': sorted(nodes, key=kept.index), 'reason': prior.reason})}")
    return iter(["", "forbid:", *rows] if rows else [])


def _preferred(proposal: Proposal) -> Iterator[str]:
    """What similar models preferred."""
    rows = []
    for prior in proposal.priors:
        if prior.kind == "prefer" and prior.scope.chain is not None:
            item: dict[str, Any] = {"chain": list(prior.scope.chain)}
            item |= {"values": prior.values} if prior.values else {"weight": prior.weight}
            rows.append(f"  - {flow({**item, 'reason': prior.reason})}")
    return iter(
        ["", "prefer:                                    # what similar models did best with", *rows] if rows else []
    )


def _quality(proposal: Proposal) -> list[str]:
    lossy = any(TEMPLATES[n].lossy and n not in proposal.reasons for n in proposal.spec.passes)
    what = "on accuracy where there are labels, else on closeness to the source model"
    return [f"# constraints: [...]                        # without any, autoopt adds one {what}"] if lossy else []
