"""The order in which the passes of a chain are searched: `search.order`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from autoopt.errors import did_you_mean
from autoopt.spec.source import FieldError, Place

JOINT: Final = "joint"
PASS_BY_PASS: Final = "pass-by-pass"
_FORMS: Final = "write joint, pass-by-pass, [a, [b, c], d] or {nested: [a, [b, c]]}"


@dataclass(frozen=True)
class Group:
    """Nodes that are searched together. With several `levels` they are searched by nesting, outermost first."""

    levels: tuple[tuple[str, ...], ...]

    @property
    def nodes(self) -> tuple[str, ...]:
        """All nodes, outermost first."""
        return tuple(node for level in self.levels for node in level)


@dataclass(frozen=True)
class Order:
    """`search.order`, parsed.

    `staged` searches the `groups` one after the other; `nested` searches each group for every point of the group
    before it. `joint` and `pass-by-pass` have no groups.
    """

    kind: Literal["joint", "pass-by-pass", "staged", "nested"] = "joint"
    groups: tuple[Group, ...] = ()

    def mentions(self) -> Iterator[str]:
        """Every node that a group names."""
        for group in self.groups:
            yield from group.nodes

    def stage_of(self) -> dict[str, int]:
        """Map each node of a staged order to the index of its group; empty for the other orders."""
        if self.kind != "staged":
            return {}
        return {node: index for index, group in enumerate(self.groups) for node in group.nodes}


def parse_order(value: object) -> Order:
    """Parse `joint`, `pass-by-pass`, a list of groups, or `{nested: [...]}`.

    Raises:
        FieldError: malformed, or a node is named twice.
    """
    if isinstance(value, str):
        if value == JOINT:
            return Order("joint")
        if value == PASS_BY_PASS:
            return Order("pass-by-pass")
        remedy = did_you_mean(value, (JOINT, PASS_BY_PASS)) or _FORMS
        raise FieldError(f"unknown order {value!r}", remedy=remedy)
    place: Place = ()
    if isinstance(value, dict):
        place = ("nested",)
    groups: list[Group] = []
    named_nodes: set[str] = set()
    for index, item in enumerate(_items(value, ())):
        group = _group(item, (*place, index))
        for node in group.nodes:
            if node in named_nodes:
                raise FieldError(f"node {node!r} is named twice", place=(*place, index))
            named_nodes.add(node)
        groups.append(group)
    return Order("nested" if isinstance(value, dict) else "staged", tuple(groups))


def _items(value: object, place: Place) -> list[object]:
    """The items of a list, or of the list in `{nested: [...]}`."""
    if isinstance(value, dict):
        if set(value) != {"nested"}:
            raise FieldError("must be a list of groups or {nested: [...]}", place=place)
        value, place = value["nested"], (*place, "nested")
    if not isinstance(value, list | tuple) or not value:
        raise FieldError("must be a list of groups", place=place, remedy=_FORMS)
    return list(value)


def _group(item: object, place: Place) -> Group:
    """One group: a node, a list of nodes, or nested levels."""
    if isinstance(item, dict):
        levels = [_group(inner, place).nodes for inner in _items(item, place)]
        return Group(tuple(levels))
    nodes = tuple(item) if isinstance(item, list | tuple) else (item,)
    if not nodes:
        raise FieldError("must name at least one node", place=place)
    for node in nodes:
        if not isinstance(node, str):
            raise FieldError(f"must be a node id, not {node!r}", place=place)
    return Group((nodes,))
