"""From a spec to a plan."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from autoopt import space as spaces_module
from autoopt.dag.compiler.chain_builder import ChainMaker
from autoopt.dag.compiler.path_rules import PathRules
from autoopt.dag.compiler.plan import Inserted, Plan
from autoopt.dag.compiler.prefix_tree import Tree
from autoopt.dag.compiler.pruning import Facts, Reason, check_model, first_reason, soft_reasons
from autoopt.dag.compiler.requirements import Infos, Requirements
from autoopt.dag.graph.node_spaces import file_digests, node_space, without_value
from autoopt.dag.graph.pass_graph import PassGraph, build_graph
from autoopt.dag.graph.prior_checks import check_stated
from autoopt.dag.graph.priors import Cut, Prior, cuts_of, user_priors
from autoopt.errors import InputError
from autoopt.registry import PassInfo
from autoopt.space import NodeSpace
from autoopt.spec import DagSpec

SCHEMA: Final = 1
"""Raised whenever the meaning of a plan's digest changes."""


def compile_plan(spec: DagSpec, infos: Infos, facts: Facts | None = None, *, priors: Sequence[Prior] = ()) -> Plan:
    """The plan of a spec for its first target and one model.

    Args:
        infos: what is known of a pass, by name or alias, for the target's accelerator.
        facts: what is known of accelerator, model, runtime and data; the target's accelerator alone where not given.
        priors: the library's, beside the user's own.

    Raises:
        ConfigError: an unknown pass or parameter, a bad value, a cycle, a prior about a chain that is none.
        InputError: too many situations to tell apart.
    """
    facts = facts or Facts(spec.all_targets[0].accelerator())
    facts = replace(facts, level=spec.level if facts.level is None else facts.level)
    graph = build_graph(spec)
    known = {node: _info(spec, node, infos) for node in spec.passes}
    spaces = {node: node_space(spec, node, info) for node, info in known.items()}
    stated = (*user_priors(spec), *priors)
    check_stated(spec, graph, spaces)
    verdicts, warnings = _judge(spec, known, spaces, facts)
    rules, maker = _rules(spec, graph, known, spaces, verdicts, Requirements(infos, facts), stated)
    tree = Tree(rules, {node: space.count for node, space in spaces.items()})
    if not tree.chain_count:
        warnings.append("no chain is left")
    digest = _digest(spec, facts, graph, maker, known, stated)
    return _plan(spec, digest, spaces, tree, maker, warnings)


def _rules(
    spec: DagSpec,
    graph: PassGraph,
    infos: Mapping[str, PassInfo],
    spaces: Mapping[str, NodeSpace],
    verdicts: dict[str, Reason],
    requirements: Requirements,
    stated: Sequence[Prior],
) -> tuple[PathRules, ChainMaker]:
    """What decides about chains, and what makes them; values cut in every chain are taken out of the spaces."""
    cuts = cuts_of(stated, spaces)
    simple = [c for c in cuts if c.everywhere and c.single is not None]
    reduced = _reduce(spaces, simple, verdicts)
    rest = [c for c in cuts if c not in simple]
    rules = PathRules(graph, infos, reduced, verdicts, requirements, stated, rest)
    return rules, ChainMaker(spec, rules, spaces, cuts, stated)


def _plan(
    spec: DagSpec, digest: str, spaces: Mapping[str, NodeSpace], tree: Tree, maker: ChainMaker, warnings: list[str]
) -> Plan:
    by_rule: Counter[str] = Counter()
    for reason, count in tree.pruned.items():
        by_rule[reason.rule] += count
    return Plan(
        name=spec.name,
        digest=digest,
        spec=spec,
        graph=tree.graph,
        spaces=spaces,
        chain_count=tree.chain_count,
        point_count=tree.point_count,
        points_before=tree.points_before,
        prefix_nodes=tree.prefix_nodes,
        pruned_count=tree.pruned_count,
        pruned_by_rule=dict(sorted(by_rule.items())),
        inserted=tuple(_inserted(tree, maker)),
        warnings=tuple(warnings),
        _tree=tree,
        _maker=maker,
    )


def _info(spec: DagSpec, node: str, infos: Infos) -> PassInfo:
    name = spec.passes[node].pass_name
    try:
        return infos(name)
    except InputError as error:
        raise spec.error(("passes", node, "pass"), error.what, error.remedy) from None


def _judge(
    spec: DagSpec, infos: Mapping[str, PassInfo], spaces: Mapping[str, NodeSpace], facts: Facts
) -> tuple[dict[str, Reason], list[str]]:
    """Node id -> why no chain with it is kept; and warnings."""
    verdicts: dict[str, Reason] = {}
    warnings: list[str] = []
    for node, info in infos.items():
        found = first_reason(node, info, facts)
        if found is None and spaces[node].count == 0:
            found = Reason("empty", "its conditions leave no search point")
        if found is not None:
            text = found.text if found.text.startswith(f"{node}: ") else f"{node}: {found.text}"
            verdicts[node] = Reason(found.rule, text)
        if not facts.proposed:
            warnings += [f"{node}: {r.text}" for r in soft_reasons(node, info, facts)]
        model, prunes = check_model(info, facts)
        if model is not None and not prunes:
            warnings.append(f"{node}: {model.text}; it will be skipped")
    if spec.precision is not None and not facts.proposed:
        warnings.append(f"precision: {spec.precision} has no effect on a graph that is written out")
    return verdicts, warnings


def _reduce(spaces: Mapping[str, NodeSpace], cuts: Sequence[Cut], verdicts: dict[str, Reason]) -> dict[str, NodeSpace]:
    """The spaces less the values cut in every chain; nodes that lose every point get a verdict."""
    reduced = dict(spaces)
    for cut in cuts:
        assert cut.single is not None
        node, name, value = cut.single
        reduced[node] = without_value(reduced[node], name, value)
        if reduced[node].count == 0:
            verdicts.setdefault(node, Reason("cut", f"{node}: every point is cut; {cut.reason}"))
    return reduced


def _inserted(tree: Tree, maker: ChainMaker) -> list[Inserted]:
    found = []
    for name, before in tree.insertions():
        info = maker.rules.requirements.info(name)
        assert isinstance(info, PassInfo)
        found.append(Inserted(maker.inserted_id(info), name, before))
    return found


def _digest(
    spec: DagSpec,
    facts: Facts,
    graph: PassGraph,
    maker: ChainMaker,
    infos: Mapping[str, PassInfo],
    priors: Sequence[Prior],
) -> str:
    """sha256 of what decides which chains are tried over which points."""
    accelerator = facts.accelerator
    files = {node: named for node, info in infos.items() if (named := file_digests(spec, info, maker.spaces[node]))}
    content: dict[str, Any] = {
        "schema": SCHEMA,
        "name": spec.name,
        "accelerator": [
            accelerator.device,
            accelerator.execution_provider,
            accelerator.memory,
            sorted(accelerator.isa),
        ],
        "edges": graph.edges(),
        "nodes": [maker.identity(node) for node in sorted(infos)],
        "defaults": {node: _defaults(maker.spaces[node]) for node in infos},
        "versions": {node: [info.version, info.source_digest] for node, info in infos.items()},
        "hosts": {node: (spec.passes[node].host or spec.host).model_dump() for node in infos},
        "inserted": maker.rules.requirements.resolved(),
        "verdicts": {node: [r.rule, r.text] for node, r in maker.rules.verdicts.items()},
        "priors": [[p.kind, p.scope.to_json(), p.values, p.weight] for p in priors if p.origin != "learned"],
        "weights": spec.weights,
        **({"files": files} if files else {}),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _defaults(space: NodeSpace) -> dict[str, Any]:
    return {name: spaces_module.definition_to_json(value) for name, value in space.defaults.items()}
