"""dag.yaml as a value."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from autoopt.errors import did_you_mean
from autoopt.model.files import split_source
from autoopt.spec import graph
from autoopt.spec.data import DataSpec
from autoopt.spec.file_model import FileModel
from autoopt.spec.nodes import PassNode
from autoopt.spec.objectives import ConstraintSpec, Objectives, check_metric
from autoopt.spec.priors import PreferSpec, PriorSpec
from autoopt.spec.search import SearchSpec
from autoopt.spec.source import FieldError, Place
from autoopt.spec.strict_model import Name, StrictModel, check_name
from autoopt.spec.targets import HostSpec, TargetSpec

GRAPHS = ("chains", "stages", "edges")


class LimitsSpec(StrictModel):
    """What one call in a worker may take."""

    pass_seconds: float = Field(default=600.0, gt=0)
    measure_seconds: float = Field(default=60.0, gt=0)
    memory: int | None = Field(default=None, gt=0)
    """Bytes; half the machine's memory where it is not given."""


class DagSpec(FileModel):
    """A pass graph with what is to be done with it. Made by `load_dag`, which knows where each field was written."""

    name: Name
    passes: dict[str, PassNode]
    """By node id."""
    chains: tuple[tuple[str, ...], ...] | None = Field(default=None, strict=False)
    """Pass lists: exactly these chains."""
    stages: tuple[tuple[str | None, ...], ...] | None = Field(default=None, strict=False)
    """Alternatives per stage; null is "skip"."""
    edges: tuple[tuple[str, ...], ...] | None = Field(default=None, strict=False)
    """Paths `a -> b -> c` whose steps are the edges of the graph."""
    target: TargetSpec | None = None
    targets: tuple[TargetSpec, ...] = Field(default=(), strict=False)
    host: HostSpec = HostSpec()
    """Where passes run that name no host of their own."""
    model: str | None = None
    data: DataSpec = DataSpec()
    user_script: str | None = None
    objectives: Objectives = ()
    """By priority; the lowest latency_p50 if none are given."""
    constraints: tuple[ConstraintSpec, ...] | None = Field(default=None, strict=False)
    """None: not given, autoopt adds one on quality; empty: none at all."""
    search: SearchSpec = SearchSpec()
    evaluate: Literal["final", "intermediate"] = "final"
    """`intermediate`: metrics are recorded for every artifact on the way."""
    prefer: tuple[PreferSpec, ...] = Field(default=(), strict=False)
    forbid: tuple[PriorSpec, ...] = Field(default=(), strict=False)
    require: tuple[PriorSpec, ...] = Field(default=(), strict=False)
    weights: dict[str, float] = Field(default_factory=dict)
    """Chain (name `a -> b` or id) -> how promising it is; 1 is neutral."""
    level: int | None = Field(default=None, ge=0, le=3)
    """How far to go: 0 lossless, 1 equal up to rounding, 2 lossy without data, 3 everything."""
    precision: Literal["fp32", "fp16", "mixed", "int8", "int4"] | None = None
    """The precision that a proposed graph was made for."""
    measurement: dict[str, Any] = Field(default_factory=dict)
    """Settings of the meters."""
    limits: LimitsSpec = LimitsSpec()

    @field_validator("passes", mode="before")
    @classmethod
    def _read_passes(cls, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            value = dict.fromkeys(value) if all(isinstance(v, str) for v in value) else value
        if not isinstance(value, dict):
            raise FieldError("must be a mapping of node ids to passes")
        if not value:
            raise FieldError("is empty", remedy="name at least one pass")
        return {node: cls._read_node(node, item) for node, item in value.items()}

    @staticmethod
    def _read_node(node: str, item: Any) -> Any:
        try:
            check_name(node)
        except FieldError as wrong:
            raise FieldError(wrong.reason, place=(node,), remedy=wrong.remedy) from None
        if item is None or (isinstance(item, dict) and not item.get("pass")):
            return {**(item or {}), "pass": node}
        return item

    @field_validator(*GRAPHS, mode="before")
    @classmethod
    def _read_graph(cls, value: Any, info: Any) -> Any:
        if value is None:
            raise FieldError("is empty", remedy="name at least one pass")
        return getattr(graph, f"read_{info.field_name}")(value)

    @field_validator("target", mode="before")
    @classmethod
    def _target_given(cls, value: Any) -> Any:
        if value is None:
            raise FieldError("is empty", remedy="remove it, or write {device: cpu}")
        return value

    @field_validator("weights")
    @classmethod
    def _positive(cls, value: dict[str, float]) -> dict[str, float]:
        for chain, weight in value.items():
            if not weight > 0:
                raise FieldError(f"must be above 0, not {weight}", place=(chain,), remedy="use forbid to leave it out")
        return value

    @model_validator(mode="after")
    def _whole(self) -> DagSpec:
        given = [kind for kind in GRAPHS if getattr(self, kind) is not None]
        if len(given) != 1:
            reason = f"{' and '.join(given)} exclude each other" if given else "has no graph"
            raise FieldError(
                reason, place=(given[1],) if given else (), remedy="give exactly one of chains, stages, edges"
            )
        if self.target is not None and self.targets:
            raise FieldError("target and targets exclude each other", place=("targets",), remedy="remove one of them")
        names = [t.name for t in self.targets]
        for index, name in enumerate(names):
            if name in (".", ".."):
                raise FieldError(
                    f"cannot be named {name!r}", place=("targets", index), remedy="a folder is named after it"
                )
            if name in names[:index]:
                raise FieldError(
                    f"is named {name!r} like another target", place=("targets", index), remedy="give each a name"
                )
        self._check_metrics()
        self._check_mentions()
        return self

    def _check_metrics(self) -> None:
        custom = self.user_script is not None
        mentioned: list[tuple[Place, str]] = [
            *((("objectives", i, "metric"), o.metric) for i, o in enumerate(self.objectives)),
            *((("constraints", i, "metric"), c.metric) for i, c in enumerate(self.constraints or ())),
        ]
        for node, spec in self.passes.items():
            wanted = enumerate(spec.objectives or ())
            mentioned += [(("passes", node, "objectives", i, "metric"), o.metric) for i, o in wanted]
        for place, name in mentioned:
            try:
                check_metric(name, custom)
            except FieldError as wrong:
                raise FieldError(wrong.reason, place=place, remedy=wrong.remedy) from None

    def _mentions(self) -> Iterator[tuple[str, Place]]:
        """Every node id that something else than `passes` names."""
        kind = self.graph_kind
        yield from graph.places(kind, getattr(self, kind))
        for node in self.search.parsed_order().mentions():
            yield node, ("search", "order")
        for field in ("prefer", "forbid", "require"):
            for index, prior in enumerate(getattr(self, field)):
                yield from ((node, (field, index)) for node in (prior.chain or prior.nodes or ()))
                yield from ((node, (field, index, "values", node)) for node in prior.values)

    def _check_mentions(self) -> None:
        for node, place in self._mentions():
            if node not in self.passes:
                hint = did_you_mean(node, self.passes) or f"known: {', '.join(self.passes)}"
                raise FieldError(f"unknown node {node!r}", place=place, remedy=hint)
        used = {node for node, _ in graph.places(self.graph_kind, getattr(self, self.graph_kind))}
        for node in self.passes:
            if node not in used:
                remedy = f"name it in {self.graph_kind}, or remove it"
                raise FieldError("is in no chain", place=("passes", node), remedy=remedy)

    @property
    def graph_kind(self) -> str:
        """`chains`, `stages` or `edges`."""
        return next(kind for kind in GRAPHS if getattr(self, kind) is not None)

    @cached_property
    def all_targets(self) -> tuple[TargetSpec, ...]:
        """The targets; this machine's CPU where none is given."""
        return self.targets or (self.target or TargetSpec(),)

    def for_target(self, name: str) -> DagSpec:
        """The same for one of the targets alone."""
        one = self.model_copy(update={"targets": (), "target": next(t for t in self.all_targets if t.name == name)})
        one.__dict__.pop("all_targets", None)  # what was worked out for all of them
        return one

    @property
    def data_root(self) -> str:
        """What relative paths of data start from."""
        return self._data_root or str(self._source.folder)

    @property
    def model_path(self) -> str | None:
        return None if self.model is None else self.path(self.model)

    @property
    def script_path(self) -> str | None:
        return None if self.user_script is None else self.path(self.user_script)

    def data_json(self, which: str) -> Any:
        """The data config of `evaluation`, `calibration` or `latency` as JSON, paths absolute; None if not given."""
        return self.data.resolved(which, self._source.folder, self._data_root)

    def check_files(self, *, model: bool = True, data: bool = True) -> None:
        """That the files named here exist; `model`, `data`: whether to look for those, too.

        Raises:
            ConfigError: one is missing.
        """
        wanted: list[tuple[Place, str]] = []
        if self.user_script:
            wanted.append((("user_script",), self.user_script))
        if model and self.model:
            wanted.append((("model",), split_source(self.model)[0]))
        if data:
            wanted += [(("data", *place), path) for place, path in self.data.paths()]
        for place, text in wanted:
            path = self.data_path(text) if place[0] == "data" else self.path(text)
            if "://" not in path and not Path(path).exists():
                raise self.error(place, f"no such file: {text}", f"looked for {path}")
