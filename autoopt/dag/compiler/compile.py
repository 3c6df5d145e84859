"""From a spec to a plan."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from autoopt.dag.compiler.chain_builder import ChainBuilder
from autoopt.dag.compiler.cut_counts import CutCounter
from autoopt.dag.compiler.path_rules import PathRules
from autoopt.dag.compiler.plan import Plan
from autoopt.dag.compiler.prefix_tree import PrefixTree
from autoopt.dag.compiler.pruning import Facts, Reason, check_model, first_reason, prunes_idle, soft_reasons
from autoopt.dag.compiler.requirements import Infos, Requirements
from autoopt.dag.graph.node_spaces import file_digests, node_space
from autoopt.dag.graph.pass_graph import build_graph
from autoopt.dag.graph.priors import Cut, Prior, cuts_of, user_priors
from autoopt.dag.graph.spec_checks import SpecChecks
from autoopt.errors import InputError, Mistakes
from autoopt.json_codec import JsonValue
from autoopt.metrics import known_metric
from autoopt.registry import PassInfo
from autoopt.space import NodeSpace, definition_to_json
from autoopt.spec import DagSpec

SCHEMA: Final = 1
"""Incremented whenever the meaning of a plan's digest changes."""


def compile_plan(spec: DagSpec, infos: Infos, facts: Facts | None = None, *, priors: Sequence[Prior] = ()) -> Plan:
    """The plan of a spec for its first target and one model.

    Without `facts`, only the target's accelerator is known. `priors` are the library's, beside the user's own.

    Raises:
        ConfigError: an unknown pass or parameter, a bad value, a cycle, a prior about a chain that does not exist.
        InputError: more states or points than planning can handle.
    """
    facts = facts or Facts(spec.all_targets[0].accelerator())
    if facts.level is None:
        facts = replace(facts, level=spec.level)
    graph = build_graph(spec)
    passes, spaces = nodes_of(spec, infos)
    stated = (*user_priors(spec), *priors)
    SpecChecks(spec, graph, spaces).check()
    idle_sessions = _idle_sessions(spec, passes, spaces)
    for node in idle_sessions:
        spaces[node] = replace(spaces[node], search={})
    verdicts = _verdicts(passes, spaces, facts)
    cuts = cuts_of(stated, spaces)
    # A value that is cut in every chain makes a node's space smaller once and for all. Only the other cuts have to be
    # followed along the paths, where each multiplies the states to count.
    reduced, remaining_cuts = _apply_simple_cuts(spaces, cuts, verdicts)
    counter = CutCounter(remaining_cuts, {node: space for node, space in reduced.items() if node not in verdicts})
    rules = PathRules(graph, passes, verdicts, Requirements(infos, facts), stated, counter)
    builder = ChainBuilder(spec, rules, spaces, cuts, stated)
    tree = PrefixTree(rules, {node: space.count for node, space in spaces.items()})
    warnings = _warnings(spec, passes, facts)
    for node in idle_sessions:
        warnings.append(f"{node}: not searched, because session options do not change the size of a model")
    if not tree.chain_count:
        warnings.append("no chain is left")
    return Plan(spec, _digest(builder, facts), spaces, tuple(warnings), tree, builder)


def nodes_of(spec: DagSpec, infos: Infos) -> tuple[dict[str, PassInfo], dict[str, NodeSpace]]:
    """The pass and the space of each node; raises all mistakes at once."""
    passes: dict[str, PassInfo] = {}
    spaces: dict[str, NodeSpace] = {}
    mistakes = Mistakes()
    for node in spec.passes:
        with mistakes:
            passes[node] = _look_up(spec, node, infos)
            spaces[node] = node_space(spec, node, passes[node])
    mistakes.raise_all()
    return passes, spaces


def _look_up(spec: DagSpec, node: str, infos: Infos) -> PassInfo:
    try:
        return infos(spec.passes[node].pass_name)
    except InputError as error:
        raise spec.error(("passes", node, "pass"), error.what, error.remedy) from None


def _idle_sessions(spec: DagSpec, passes: Mapping[str, PassInfo], spaces: Mapping[str, NodeSpace]) -> list[str]:
    """The nodes that search session options in vain, because the size of the model is the only objective."""
    if not _only_size_matters(spec):
        return []
    nodes: list[str] = []
    for node, info in passes.items():
        search = spaces[node].search
        if info.session_only and search and search.keys() <= spaces[node].defaults.keys():
            nodes.append(node)
    return nodes


def _only_size_matters(spec: DagSpec) -> bool:
    """True if neither an objective nor a constraint depends on how the model runs."""
    for constraint in spec.constraints or ():
        metric = known_metric(constraint.metric)
        if metric is None or metric.kind in ("latency", "memory"):
            return False
    return {objective.metric for objective in spec.objectives} == {"size"}


def _verdicts(passes: Mapping[str, PassInfo], spaces: Mapping[str, NodeSpace], facts: Facts) -> dict[str, Reason]:
    """Node id -> the reason why no chain with it is kept."""
    verdicts: dict[str, Reason] = {}
    for node, info in passes.items():
        reason = first_reason(node, info, facts)
        if reason is None and spaces[node].count == 0:
            reason = Reason("empty", "its conditions exclude every search point")
        if reason is not None:
            verdicts[node] = Reason(reason.rule, f"{node}: {reason.text}")
    return verdicts


def _warnings(spec: DagSpec, passes: Mapping[str, PassInfo], facts: Facts) -> list[str]:
    warnings: list[str] = []
    for node, info in passes.items():
        if not facts.proposed:
            warnings += [f"{node}: {reason.text}" for reason in soft_reasons(info, facts)]
        idle = check_model(info, facts)
        if idle is not None and not prunes_idle(info, facts):
            warnings.append(f"{node}: {idle.text}; it will be skipped")
    if spec.precision is not None and not facts.proposed:
        warnings.append(f"precision: {spec.precision} has no effect on a DAG that lists its own passes")
    return warnings


def _apply_simple_cuts(
    spaces: Mapping[str, NodeSpace], cuts: Sequence[Cut], verdicts: dict[str, Reason]
) -> tuple[dict[str, NodeSpace], list[Cut]]:
    """The spaces without the values that are cut in every chain, and the remaining cuts.

    Nodes that lose every point get a verdict.
    """
    reduced = dict(spaces)
    remaining: list[Cut] = []
    for cut in cuts:
        if cut.single is None or not cut.scope.everywhere:
            remaining.append(cut)
            continue
        node, name, value = cut.single
        reduced[node] = reduced[node].without_value(name, value)
        if reduced[node].count == 0:
            verdicts.setdefault(node, Reason("cut", f"{node}: every search point is excluded; {cut.reason}"))
    return reduced, remaining


def _digest(builder: ChainBuilder, facts: Facts) -> str:
    """sha256 of everything that decides which chains are tried over which points; the wording of reasons does not."""
    spec, rules, target = builder.spec, builder.rules, facts.accelerator
    files: dict[str, JsonValue] = {}
    defaults: dict[str, JsonValue] = {}
    versions: dict[str, JsonValue] = {}
    hosts: dict[str, JsonValue] = {}
    for node, info in rules.infos.items():
        space = builder.spaces[node]
        defaults[node] = {name: definition_to_json(value) for name, value in space.defaults.items()}
        versions[node] = [info.version, info.source_digest]
        hosts[node] = (spec.passes[node].host or spec.host).model_dump()
        if digests := file_digests(spec, info, space):
            files[node] = digests
    content: dict[str, JsonValue] = {
        "schema": SCHEMA,
        "name": spec.name,
        "accelerator": [target.device, target.execution_provider, target.memory, sorted(target.isa)],
        "edges": rules.graph.edges,
        "nodes": [builder.identity(node) for node in sorted(rules.infos)],
        "defaults": defaults,
        "versions": versions,
        "hosts": hosts,
        "inserted": rules.requirements.resolved(),
        "verdicts": {node: reason.rule for node, reason in rules.verdicts.items()},
        "priors": [[p.kind, p.scope.to_json(), p.values, p.weight] for p in rules.priors if p.origin != "learned"],
        "weights": spec.weights,
    }
    if files:
        content["files"] = files
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
