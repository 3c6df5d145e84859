"""From a spec to a plan, and all mistakes of a DAG at once: wrong fields, wrong parameters of passes, missing files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import filterfalse
from typing import Final

from autoopt.dag.compiler.chain import ChainBuilder
from autoopt.dag.compiler.node_spaces import NamedFile, named_files, node_space
from autoopt.dag.compiler.pass_graph import SpecChecks, build_graph
from autoopt.dag.compiler.path_rules import CutCounter, PathRules
from autoopt.dag.compiler.plan import Plan
from autoopt.dag.compiler.prefix_tree import PrefixTree
from autoopt.dag.compiler.priors import Cut, Prior, cuts_of, user_priors
from autoopt.dag.compiler.pruning import Facts, Reason, check_model, first_reason, prunes_idle, soft_reasons
from autoopt.dag.compiler.requirements import HostPasses, Infos, PassLookup, Requirements, pass_infos
from autoopt.errors import ConfigError, InputError, Mistakes, joined
from autoopt.json_codec import JsonValue
from autoopt.metrics import known_metric
from autoopt.registry import PassInfo
from autoopt.space import NodeSpace, Value, definition_to_json
from autoopt.spec import DagSpec, load_dag
from autoopt.spec.document import Document, Json
from autoopt.spec.file_model import Written
from autoopt.spec.reader import overridden, read_document

COMPOSED, INNER = "composed", "passes"
"""The family of passes that run others, and the parameter that names these."""
FILE_FIELDS: Final = ("user_script", "model", "connections", "pipeline", "data")
"""Fields of a DAG that name files, and those that only make sense with them."""
SCHEMA: Final = 1
"""Incremented whenever the meaning of a plan's digest changes."""


def compile_plan(
    spec: DagSpec,
    infos: Infos,
    facts: Facts | None = None,
    *,
    priors: Sequence[Prior] = (),
    host_passes: HostPasses | None = None,
) -> Plan:
    """The plan of a spec for its first target and one model.

    `infos` are the passes of this interpreter and of the user script; `host_passes` those of other hosts, which are
    asked only for what this interpreter lacks. `priors` are the library's, in addition to the user's own.

    Raises:
        ConfigError: an unknown pass or parameter, a bad value, a cycle, a prior about a chain that does not exist.
        InputError: more states or points than planning can handle.
    """
    facts = facts or Facts(spec.all_targets[0].accelerator())
    if facts.level is None:
        facts = replace(facts, level=spec.level)
    graph = build_graph(spec)
    lookup = PassLookup(spec, infos, host_passes)
    passes, spaces = nodes_of(lookup, spec.passes)
    stated = (*user_priors(spec), *priors)
    SpecChecks(spec, graph, spaces).check()
    idle_searches = _remove_idle_searches(spec, passes, spaces)
    verdicts = _verdicts(passes, spaces, facts)
    cuts = cuts_of(stated, spaces)
    counter = _cut_counter(spaces, cuts, verdicts)
    rules = PathRules(graph, passes, verdicts, Requirements(lookup.required, facts), stated, counter)
    builder = ChainBuilder(spec, rules, spaces, cuts, stated, lookup)
    tree = PrefixTree(rules, {node: space.count for node, space in spaces.items()})
    warnings = (*_warnings(spec, passes, facts), *idle_searches)
    if not tree.chain_count:
        warnings += ("no chain is left",)
    files = {node: named_files(spec, info, spaces[node]) for node, info in builder.rules.infos.items()}
    return Plan(spec, _digest(builder, facts, files), spaces, warnings, tree, builder, files)


def nodes_of(lookup: PassLookup, nodes: Iterable[str]) -> tuple[dict[str, PassInfo], dict[str, NodeSpace]]:
    """The pass and the space of each node; raises all mistakes at once."""
    passes: dict[str, PassInfo] = {}
    spaces: dict[str, NodeSpace] = {}
    mistakes = Mistakes()
    for node in nodes:
        with mistakes:
            try:
                passes[node] = lookup.of_node(node)
            except InputError as error:
                if error.where:  # the host, which cannot be asked
                    raise
                raise lookup.spec.error(("passes", node, "pass"), error.what, error.remedy) from None
            spaces[node] = node_space(lookup.spec, node, passes[node])
            passes[node] = with_inner_passes(passes[node], spaces[node], lookup.infos)
    mistakes.raise_all()
    return passes, spaces


def with_inner_passes(info: PassInfo, space: NodeSpace, infos: Infos) -> PassInfo:
    """A pass with what the passes declare that its parameters name, so that its results depend on the same as theirs.

    Other passes stay as they are, and so do those that name a pass which there is not: running them says so.
    """
    if info.family != COMPOSED:
        return info
    inner = _inner_passes(space, infos)
    passes = [info, *inner.values()]
    implementations = [f"{name} {one.version} {one.source_digest}".strip() for name, one in sorted(inner.items())]
    return replace(
        info,
        tolerance=max((one.tolerance for one in passes), key=("lossless", "equal", "lossy").index),
        needs_data=any(one.needs_data for one in passes),
        host_bound=any(one.host_bound for one in passes),
        libraries=tuple(dict.fromkeys(library for one in passes for library in one.libraries)),
        source_digest=", ".join(filter(None, [info.source_digest, *implementations])),
    )


def _limits_a_run(spec: DagSpec) -> bool:
    """True if a constraint depends on how the model is executed."""
    metrics = [known_metric(constraint.metric) for constraint in spec.constraints or ()]
    return any(metric is None or metric.kind in ("latency", "memory") for metric in metrics)


def _inner_passes(space: NodeSpace, infos: Infos) -> dict[str, PassInfo]:
    """The passes that the parameters name, and those that they require, by name."""
    values: tuple[Value, ...] = (space.fixed.get(INNER),)
    if INNER in space.search:
        values = space.search[INNER].all_values()
    names = [str(name) for value in values if isinstance(value, list | tuple) for name in value]
    inner: dict[str, PassInfo] = {}
    while names:
        name = names.pop()
        if name not in inner:
            with suppress(InputError):
                inner[name] = infos(name)
                names += inner[name].requires
    return inner


def _remove_idle_searches(spec: DagSpec, passes: Mapping[str, PassInfo], spaces: dict[str, NodeSpace]) -> list[str]:
    """Fix session options that need no search, because the size of the model is the only objective.

    Returns a warning for each node.
    """
    if _limits_a_run(spec) or {objective.metric for objective in spec.objectives} != {"size"}:
        return []
    warnings: list[str] = []
    for node, info in passes.items():
        search = spaces[node].search
        if info.session_only and search and search.keys() <= spaces[node].defaults.keys():
            spaces[node] = replace(spaces[node], search={})
            warnings.append(f"{node}: not searched, because session options do not change the size of a model")
    return warnings


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


def _cut_counter(spaces: Mapping[str, NodeSpace], cuts: Sequence[Cut], verdicts: dict[str, Reason]) -> CutCounter:
    """The counter of the points that cuts leave. Nodes that lose every point get a verdict.

    A value that is cut in every chain makes a node's space smaller once and for all. Only the other cuts have to be
    followed along the paths, where each multiplies the states to count.
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
    return CutCounter(remaining, {node: space for node, space in reduced.items() if node not in verdicts})


def _digest(builder: ChainBuilder, facts: Facts, named: Mapping[str, Sequence[NamedFile]]) -> str:
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
        hosts[node] = spec.host_of(node).model_dump()
        if digests := {file.text: file.digest for file in named[node] if file.digest}:
            files[node] = digests
    content: dict[str, JsonValue] = {
        "schema": SCHEMA,
        "name": spec.name,
        "accelerator": [target.device, target.execution_provider, target.memory, sorted(target.isa)],
        "edges": rules.graph.edges,
        "nodes": list(map(builder.identity, sorted(rules.infos))),
        "defaults": defaults,
        "versions": versions,
        "hosts": hosts,
        "inserted": rules.requirements.resolved(),
        "verdicts": {node: reason.rule for node, reason in rules.verdicts.items()},
        "priors": [[p.kind, p.scope.to_json(), p.values, p.weight] for p in rules.priors],
        "weights": spec.weights,
    }
    if files:
        content["files"] = files
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def read_dag(
    given: Written | DagSpec, fields: Mapping[str, Json] | None = None, *, model: bool = False, data: bool = False
) -> DagSpec:
    """Load a DAG. If fields are wrong, its passes and the files that it names are looked at too.

    Args:
        given: The DAG.
        fields: Fields that override those of a DAG that is not loaded yet, by their dotted names.
        model: Whether to look for its model, which nothing else replaces.
        data: The same for its data.

    Raises:
        ConfigError: the first mistake, with all others.
    """
    if isinstance(given, DagSpec):
        return given
    document = overridden(given if isinstance(given, Document) else read_document(given), fields or {})
    try:
        return load_dag(document)
    except ConfigError as error:
        missing = _missing_files(document, model=model, data=data)
        raise joined([error, *error.others, *_wrong_passes(document), *missing]) from None


def check_dag(spec: DagSpec, *, model: bool, data: bool) -> None:
    """Check that the files exist that a DAG names, and its passes; `model` and `data` as for `DagSpec.check_files`.

    Raises:
        ConfigError: the first mistake, with all others.
    """
    mistakes = Mistakes()
    with mistakes:
        _check_passes(spec)
    with mistakes:
        spec.check_files(model=model, data=data)
    mistakes.raise_all()


def _check_passes(spec: DagSpec) -> None:
    """Check passes and their parameters, unless a script may add passes.

    Those that another host may have or describe otherwise are left to planning.

    Raises:
        ConfigError: the first mistake, with all others.
    """
    if not spec.user_script:
        lookup = PassLookup(spec, pass_infos(spec.all_targets[0].accelerator()))
        nodes_of(lookup, filterfalse(lookup.is_left_to_host, spec.passes))


def _wrong_passes(document: Document) -> list[ConfigError]:
    """The mistakes of each pass of a DAG that cannot be loaded."""
    fields = document.value
    if not isinstance(fields, dict) or fields.get("user_script"):
        return []
    passes = fields.get("passes")
    if not isinstance(passes, dict):
        return []
    mistakes = Mistakes()
    for node, content in passes.items():
        single: dict[str, Json] = {"name": "dag", "passes": {node: content}, "chains": [[node]]}
        if "host" in fields:
            single["host"] = fields["host"]
        alone = Document(single, document.source)
        with mistakes:
            _check_passes(load_dag(alone))
    return mistakes.errors


def _missing_files(document: Document, *, model: bool, data: bool) -> list[ConfigError]:
    """The missing files of a DAG that cannot be loaded."""
    fields = document.value
    if not isinstance(fields, dict):
        return []
    files: dict[str, Json] = {name: fields[name] for name in FILE_FIELDS if name in fields}
    alone = Document({"name": "dag", "passes": {"a": "simplify"}, "chains": [["a"]], **files}, document.source)
    mistakes = Mistakes()
    with mistakes:
        load_dag(alone).check_files(model=model, data=data)
    return mistakes.errors
