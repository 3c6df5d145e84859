"""A plan as text: a tree of chains for people. Pure functions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from autoopt.dag.compiler.chain import Chain, CutValue
from autoopt.dag.compiler.plan import Plan
from autoopt.errors import one_line
from autoopt.spec.targets import HostSpec


def tree_text(plan: Plan, limit: int | None = 100) -> str:
    """The chains as a tree with their points, then inserted passes, cut values and pruned chains with the reasons.

    Lists at most `limit` chains of each kind.
    """
    branches, cuts, listed = _Branches(plan), list[tuple[str, CutValue]](), 0
    for chain in plan.chains(limit):
        branches.add(chain)
        cuts += [(chain.name, cut) for cut in chain.cuts]
        listed += 1
    before = _before_cuts(plan.point_count, plan.points_before)
    points = f"{_number(plan.point_count, 'point')}{before}"
    nodes = f"{_number(plan.prefix_nodes, 'node')} in the prefix tree"
    lines = [f"{plan.name}: {_number(plan.chain_count, 'chain')}, {points}, {nodes}"]
    if plan.goal:
        lines.append(f"goal: {', '.join(plan.goal)}")
    lines += branches.lines()
    if plan.chain_count > listed:
        lines.append(f"... and {_number(plan.chain_count - listed, 'more chain')}")
    lines += _aliases(plan)
    for inserted in plan.inserted:
        label = _named(inserted.node, inserted.pass_name, *_place(inserted.host))
        lines.append(f"inserted: {label} before {inserted.before}")
    if plan.decisions:
        lines += _proposal(plan, cuts)
    else:
        lines += _learned(plan)
        lines += [
            f"cut: {name}: {cut.node}.{cut.param}={cut.value!r}{_beside(cut)}: {cut.reason}" for name, cut in cuts
        ]
        lines += _pruned(plan, limit)
    lines += [f"warning: {text}" for text in plan.warnings]
    # Names are the user's: only their spaces may reach the terminal as they are, for the indentation.
    return "".join(f"{_printable(line)}\n" for line in lines)


def summary_text(plan: Plan) -> str:
    """The plan of a proposed graph in a few lines: passes in their order, and the decisions that a user can change."""
    before = _before_cuts(plan.point_count, plan.points_before)
    lines = [f"{plan.name}: {_number(plan.chain_count, 'chain')}, {_number(plan.point_count, 'point')}{before}"]
    if plan.goal:
        lines.append(f"goal: {', '.join(plan.goal)}")
    kept = {plan.graph.node_of.get(key) for key in plan.kept_keys}
    lines.append(f"passes: {', '.join(node for node in plan.spaces if node in kept)}")
    lines += [f"{decision.what}: {decision.why}" for decision in plan.decisions if not decision.is_detail]
    lines += [f"warning: {text}" for text in plan.warnings]
    lines.append("'autoopt --verbose plan' lists the chains, what was left out and why, and the first points")
    return "".join(f"{one_line(line)}\n" for line in lines)


def _printable(line: str) -> str:
    return line if line.isprintable() else " ".join(map(one_line, line.split(" ")))


def _aliases(plan: Plan) -> Iterator[str]:
    for node, alias in plan.aliases.items():
        params = ", ".join(f"{name}: {json.dumps(value)}" for name, value in alias.params.items())
        yield f"alias: {node}: {alias.written} is {alias.pass_name}{params and ' with '}{params}"


class _Branches:
    """The chains of a plan as lines of a tree. Chains that share a beginning are neighbours."""

    def __init__(self, plan: Plan) -> None:
        self._labels: dict[str, str] = {}
        for node, space in plan.spaces.items():
            times = () if space.count == 1 else (f"x{space.count}",)
            self._labels[node] = _named(node, plan.pass_info(node).name, *times, *_place(plan.spec.host_of(node)))
        self._texts: list[str] = []
        self._depths: list[int] = []
        self._path: list[tuple[str, int]] = []
        """The passes of the last chain, and the line of each."""

    def add(self, chain: Chain) -> None:
        """Add a line for each pass that the chain does not share with the one before it."""
        passes, depth = chain.passes, 0
        while depth < min(len(passes), len(self._path)) and passes[depth] == self._path[depth][0]:
            depth += 1
        if depth < len(passes):
            del self._path[depth:]
        for node in passes[depth:]:
            self._path.append((node, len(self._texts)))
            self._depths.append(len(self._path) - 1)
            self._texts.append(self._labels[node])
        points = _number(chain.points, "point") + _before_cuts(chain.points, chain.points_before)
        self._texts[self._path[len(passes) - 1][1]] += f"  = {points}  {chain.id}"

    def lines(self) -> list[str]:
        """The lines with the branches drawn before them."""
        lines = []
        has_later: list[bool] = []
        # From the end: by then it is known which passes have a later neighbour, to which a branch leads.
        for text, depth in zip(reversed(self._texts), reversed(self._depths), strict=True):
            del has_later[depth + 1 :]
            has_later += [False] * (depth + 1 - len(has_later))
            indent = "".join("│  " if later else "   " for later in has_later[:depth])
            lines.append(f"{indent}{'├─' if has_later[depth] else '└─'} {text}")
            has_later[depth] = True
        return lines[::-1]


def _place(host: HostSpec) -> tuple[str, ...]:
    """The host of a pass, unless it is this interpreter."""
    return (f"on {host.elsewhere}",) if host.elsewhere else ()


def _named(node: str, *details: str) -> str:
    """A node with the details that its id does not already say."""
    new = [detail for detail in details if detail != node]
    return f"{node} ({', '.join(new)})" if new else node


def _before_cuts(points: int, before: int) -> str:
    return f" (of {before} before cuts)" if points != before else ""


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _learned(plan: Plan) -> Iterator[str]:
    """List the first points that were learned, and from what."""
    for learned in plan.learned:
        yield f"learned: {learned.text}"


def _proposal(plan: Plan, listed_cuts: Sequence[tuple[str, CutValue]]) -> Iterator[str]:
    """Decisions of a proposal; cuts and pruned chains by reason, because its graph is the same for most models."""
    for decision in plan.decisions:
        yield f"decided: {decision.what}: {decision.why}"
    for preference in plan.preferences:
        yield f"order: {preference.scope}: {preference.reason}"
    yield from _learned(plan)
    values: dict[tuple[str, str], list[str]] = {}
    for _, cut in listed_cuts:
        cut_values = values.setdefault((f"{cut.node}.{cut.param}", f"{_beside(cut)}: {cut.reason}"), [])
        if repr(cut.value) not in cut_values:
            cut_values.append(repr(cut.value))
    for (parameter, rest), cut_values in values.items():
        yield f"cut: {parameter}={' or '.join(cut_values)}{rest}"
    for reason, count in plan.pruned_by_reason.items():
        yield f"pruned: {_number(count, 'chain')}: {reason.text} [{reason.rule}]"


def _beside(cut: CutValue) -> str:
    """The values beside which a value is cut; empty if it always is."""
    beside = ""
    for node, values in cut.beside.items():
        for name, value in values.items():
            beside += f" with {node}.{name}={value!r}"
    return beside


def _pruned(plan: Plan, limit: int | None) -> Iterator[str]:
    listed = 0
    for pruned in plan.pruned(limit):
        listed += 1
        yield f"pruned: {pruned.name}: {pruned.reason} [{pruned.rule}]"
    if plan.pruned_count > listed:
        rules = ", ".join(f"{rule}: {count}" for rule, count in plan.pruned_by_rule.items())
        yield f"pruned: {plan.pruned_count} chains in total ({rules})"
