"""The tables of proposals: nodes, stages, what rules them out, what each provider can use, and the first points.

`templates.toml` is the table; its comments say what each field means.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal, TypeAlias

from autoopt.json_codec import from_json
from autoopt.space import Value
from autoopt.spec.proposal_options import PRECISIONS

CPU: Final = "CPUExecutionProvider"
OPENVINO: Final = "OpenVINOExecutionProvider"
TRIALS: Final = (12, 20, 30, 40)
MINUTES: Final = (3, 5, 8, 10)
"""Budget by level."""

Values: TypeAlias = tuple[tuple[Value, int], ...]
"""(value, lowest level that tries it)."""
Points: TypeAlias = Mapping[str, Sequence[Mapping[str, Value]]]
"""Lossy node -> the values of each of its first points."""


@dataclass(frozen=True)
class Template:
    """One node of a proposed graph."""

    pass_name: str = field(metadata={"json": "pass"})
    summary: str
    search: Mapping[str, Values] = field(default_factory=dict)
    fixed: Mapping[str, Value] = field(default_factory=dict)
    size: float = 1.0
    lossy: bool = False


@dataclass(frozen=True)
class Method:
    """The implementation of one precision on one provider."""

    nodes: tuple[str, ...]
    text: str
    auto: bool = True


@dataclass(frozen=True)
class ProviderProfile:
    """The optimizations that an execution provider can use."""

    methods: Mapping[str, Method]
    """By precision."""
    fixed: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)
    """Node id -> parameters that are not searched."""
    fuses: bool = False
    static_shapes: bool = False
    session: str = "session"
    """The node that has its session options."""

    def chosen(self, precision: str | None) -> dict[str, Method]:
        """The methods to propose, by precision: the requested one, or all that are worth trying."""
        if precision is not None:
            return {precision: self.methods[precision]}
        chosen = {}
        for name in PRECISIONS:
            method = self.methods[name]
            if method.auto and (method.nodes or name == "fp32"):
                chosen[name] = method
        return chosen


@dataclass(frozen=True)
class FirstPoints:
    """The first points of one lossy node."""

    points: tuple[Mapping[str, Value], ...]
    common: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class Stage:
    """Alternatives at one place of the graph, on models for which `when` holds."""

    nodes: tuple[str, ...]
    when: tuple[str, ...] = ()
    skip: tuple[str, ...] | None = None
    """The condition by which none of the alternatives is an alternative, too; None: one of them is needed."""


@dataclass(frozen=True)
class Exclusion:
    """Nodes that gain nothing where `when` holds."""

    nodes: tuple[str, ...]
    reason: str
    when: tuple[str, ...]
    rule: Literal["inspection", "no-data", "memory"] = "inspection"


@dataclass(frozen=True)
class ValueCut:
    """Values of parameters that are not tried where `when` holds."""

    nodes: tuple[str, ...]
    values: Mapping[str, tuple[Value, ...] | Literal["layers"]]
    """`layers`: numbers of at least as many layers as the model has."""
    reason: str
    when: tuple[str, ...] = ()


@dataclass(frozen=True)
class Combination:
    """Values of one node that are not tried together, in chains with all of `nodes`."""

    values: Mapping[str, Mapping[str, tuple[Value, ...]]]
    """Node -> parameter -> its values; every combination of them. `default` stands for no value."""
    reason: str
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class SearchedHere:
    """Values that nodes search where `when` holds."""

    nodes: tuple[str, ...]
    search: Mapping[str, Values]
    when: tuple[str, ...]


@dataclass(frozen=True)
class Change:
    """A decision that a node stands for, where `when` holds."""

    node: str
    what: str
    why: str
    when: tuple[str, ...]


@dataclass(frozen=True)
class Tables:
    """The content of `templates.toml`."""

    stages: tuple[Stage, ...]
    excluded: tuple[Exclusion, ...]
    cuts: tuple[ValueCut, ...]
    combinations: tuple[Combination, ...]
    searched: tuple[SearchedHere, ...]
    changes: tuple[Change, ...]
    nodes: Mapping[str, Template]
    providers: Mapping[str, ProviderProfile]
    first_points: Mapping[str, Mapping[str, FirstPoints]]
    """By the kind of the model and the node."""


TABLES: Final = from_json(Tables, tomllib.loads(Path(__file__).with_name("templates.toml").read_text(encoding="utf-8")))
TEMPLATES: Final = TABLES.nodes


def provider_profile(name: str) -> ProviderProfile:
    """The profile of an execution provider."""
    return TABLES.providers.get(name, TABLES.providers["other"])


def first_values(kind: str) -> Points:
    """The values that lossy nodes begin with on a kind of model, as `templates.toml` names it."""
    values = {}
    for node, first in TABLES.first_points[kind].items():
        values[node] = [{**first.common, **point} for point in first.points]
    return values


def threaded_session(threads: Sequence[int | None]) -> Template:
    """The node `session` for a target that lists several numbers of threads; None is its default."""
    session = TEMPLATES["session"]
    values: dict[str, Values] = {"intra_op_num_threads": tuple((count, 0) for count in threads)}
    for name, searched in session.search.items():
        # The runtime's default level is searched too, for models that gain by their threads alone.
        values[name] = (("all", 0), *searched)
    return replace(session, search=values)


def openvino_session(threads: Sequence[int | None]) -> Template:
    """The node `session` for OpenVINO, which optimizes the graph itself."""
    values: dict[str, Values] = {"intra_op_num_threads": tuple((count, 0) for count in threads)} if threads else {}
    values |= {"num_streams": ((None, 0), (2, 3)), "performance_hint": ((None, 0), ("THROUGHPUT", 2))}
    return Template("session_tuning", "session options of the provider", values)


def provider_session(options: Sequence[Mapping[str, str]]) -> Template:
    """The node `session` for a provider with these options to choose from, none of them first."""
    values: Values = (({}, 0), *((dict(each), 2) for each in options))
    return Template("session_tuning", "session options of the provider", {"provider_options": values})
