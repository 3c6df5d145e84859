"""A plan as text: a tree of chains for people, Mermaid and DOT for other tools. Pure functions."""

from __future__ import annotations

import json
from collections.abc import Iterator

from autoopt.dag.compiler.chain import Chain
from autoopt.dag.compiler.plan import Plan
from autoopt.dag.graph.pass_graph import END, START
from autoopt.errors import one_line


def tree_text(plan: Plan, limit: int | None = 100) -> str:
    """The chains as a tree, what they share written once, with points; then what was inserted, cut and pruned, and why.
    At most `limit` chains of each kind are listed."""
    chains = list(plan.chains(limit))
    lines = [
        f"{plan.name}: {_number(plan.chain_count, 'chain')}, {_number(plan.point_count, 'point')}"
        f"{_before(plan.point_count, plan.points_before)}, {_number(plan.prefix_nodes, 'node')} in the prefix tree",
        *_branches(plan, [(c, c.passes) for c in chains], ""),
    ]
    if plan.chain_count > len(chains):
        lines.append(f"... and {_number(plan.chain_count - len(chains), 'more chain', 'more chains')}")
    lines += _inserted(plan)
    lines += _proposed(plan, chains) if plan.decisions else _cuts(chains) + _pruned(plan, limit)
    lines += [f"warning: {text}" for text in plan.warnings]
    return "\n".join(_shown(line) for line in lines) + "\n"


def _branches(plan: Plan, rest: list[tuple[Chain, tuple[str, ...]]], indent: str) -> Iterator[str]:
    """The lines of the chains that share a beginning, from their next pass on."""
    groups: dict[str, list[tuple[Chain, tuple[str, ...]]]] = {}
    for chain, passes in rest:
        if passes:
            groups.setdefault(passes[0], []).append((chain, passes[1:]))
    for index, (node, members) in enumerate(groups.items()):
        last = index == len(groups) - 1
        ends = [f"  = {_points(chain)}  {chain.id}" for chain, passes in members if not passes]
        yield f"{indent}{'└─' if last else '├─'} {_label(plan, node)}{''.join(ends)}"
        yield from _branches(plan, members, indent + ("   " if last else "│  "))


def _label(plan: Plan, node: str) -> str:
    name = plan.pass_of(node)
    count = plan.spaces[node].count
    inner = [name] if name != node else []
    inner += [f"x{count}"] if count != 1 else []
    return f"{node} ({', '.join(inner)})" if inner else node


def _points(chain: Chain) -> str:
    return _number(chain.points, "point") + _before(chain.points, chain.points_before)


def _before(points: int, before: int) -> str:
    return f" (of {before} before cuts)" if points != before else ""


def _number(count: int, one: str, many: str = "") -> str:
    return f"{count} {one if count == 1 else many or one + 's'}"


def _proposed(plan: Plan, chains: list[Chain]) -> list[str]:
    """What a proposal decided; cuts and pruned chains by reason, because its graph is the same for most models."""
    lines = [f"decided: {d.what}: {d.why}" for d in plan.decisions]
    lines += [f"learned: {text}" for text in plan.learned]
    cuts = dict.fromkeys((c.node, c.param, repr(c.value), c.reason) for chain in chains for c in chain.cuts)
    lines += [f"cut: {node}.{param}={value}: {reason}" for node, param, value, reason in cuts]
    for reason, count in plan.pruned_by_reason.items():
        lines.append(f"pruned: {_number(count, 'chain')}: {reason.text} [{reason.rule}]")
    return lines


def _inserted(plan: Plan) -> list[str]:
    aliases = []
    for node, known in plan.aliases.items():
        params = ", ".join(f"{name}: {json.dumps(value)}" for name, value in known["params"].items())
        aliases.append(f"alias: {node}: {known['written']} is {known['pass']}{f' with {params}' if params else ''}")
    return aliases + [
        f"inserted: {i.node if i.node == i.pass_name else f'{i.node} ({i.pass_name})'} before {i.before}"
        for i in plan.inserted
    ]


def _cuts(chains: list[Chain]) -> list[str]:
    lines = []
    for chain in chains:
        for cut in chain.cuts:
            beside = "".join(f" beside {n}.{k}={v!r}" for n, values in cut.beside.items() for k, v in values.items())
            lines.append(f"cut: {chain.name}: {cut.node}.{cut.param}={cut.value!r}{beside}: {cut.reason}")
    return lines


def _pruned(plan: Plan, limit: int | None) -> list[str]:
    lines = [f"pruned: {p.name}: {p.reason} [{p.rule}]" for p in plan.pruned(limit)]
    if plan.pruned_count > len(lines):
        rules = ", ".join(f"{rule}: {count}" for rule, count in plan.pruned_by_rule.items())
        lines.append(f"pruned: {plan.pruned_count} chains in all ({rules})")
    return lines


def _shown(line: str) -> str:
    """A line fit for a terminal; its spaces stay."""
    return " ".join(one_line(part) for part in line.split(" "))


def mermaid(plan: Plan) -> str:
    """The pass graph as a Mermaid flowchart; what is on no kept chain is dashed."""
    names = _names(plan)
    lines = ["flowchart LR"]
    lines += [f'    {names[key]}["{_box(plan, key)}"]' for key in names]
    for a, b in _edges(plan):
        kept = (a, b) in plan.kept_edges
        lines.append(f"    {names[a]} {'-->' if kept else '-.->'} {names[b]}")
    dashed = [names[key] for key in names if key not in plan.kept_keys]
    if dashed:
        lines += ["    classDef pruned stroke-dasharray: 4 4", f"    class {','.join(dashed)} pruned"]
    return "\n".join(lines) + "\n"


def dot(plan: Plan) -> str:
    """The pass graph in Graphviz' language; what is on no kept chain is dashed."""
    names = _names(plan)
    lines = [f'digraph "{plan.name}" {{', "    rankdir=LR;", "    node [shape=box];"]
    for key in names:
        style = "" if key in plan.kept_keys else ", style=dashed"
        lines.append(f'    {names[key]} [label="{_box(plan, key)}"{style}];')
    for a, b in _edges(plan):
        style = "" if (a, b) in plan.kept_edges else " [style=dashed]"
        lines.append(f"    {names[a]} -> {names[b]}{style};")
    return "\n".join([*lines, "}"]) + "\n"


def _names(plan: Plan) -> dict[str, str]:
    keys = [key for key in plan.graph.order if key not in (START, END)]
    return {key: f"n{index}" for index, key in enumerate(keys)}


def _edges(plan: Plan) -> list[tuple[str, str]]:
    return [(a, b) for a in plan.graph.order for b in plan.graph.next[a] if a != START and b != END]


def _box(plan: Plan, key: str) -> str:
    return _label(plan, plan.graph.node_of[key])
