"""dag.yaml as a value, and the same with the search of its target's threads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Final, Literal

from pydantic import Field, JsonValue, field_validator, model_validator

from autoopt.errors import Mistakes, did_you_mean
from autoopt.metrics import Objective
from autoopt.model.files import split_source
from autoopt.spec.data import DataSpec
from autoopt.spec.file_model import FileModel, Written
from autoopt.spec.graph import Chains, Edges, GraphKind, PreferSpec, PriorSpec, Stages, mentions
from autoopt.spec.model_parts import check_parts
from autoopt.spec.nodes import PassNode
from autoopt.spec.objectives import CHECKS_METRICS, ConstraintSpec, Objectives
from autoopt.spec.search import SearchSpec
from autoopt.spec.source import FieldError, FieldErrors, Place, Source, below
from autoopt.spec.strict_model import Name, StrictModel, check_name
from autoopt.spec.targets import HostSpec, TargetSpec

GRAPHS: Final[tuple[GraphKind, ...]] = ("chains", "stages", "edges")


class LimitsSpec(StrictModel):
    """Limits of one call in a worker."""

    pass_seconds: float = Field(default=600.0, gt=0)
    """Time limit of one pass; by default as much again for each GiB of the model."""
    measure_seconds: float = Field(default=60.0, gt=0)
    """Time limit of one measurement; by default as much again for each GiB of the model."""
    memory: int | None = Field(default=None, gt=0)
    """Bytes; half the machine's memory if it is not given."""


SINGLE_MODELS: Final = (".onnx", ".ort", ".pt2", ".py")
"""Ends of the names of single models; others are folders and archives."""


class DagSpec(FileModel):
    """A pass graph with targets, data, goal and search. `load_dag` makes it, with the line of each field."""

    name: Name
    """Name of the DAG: letters, digits, `.`, `_`, `-`."""
    passes: dict[str, PassNode]
    """Nodes of the graph: node id -> pass and parameters."""
    chains: Chains | None = None
    """Pass lists: exactly these chains."""
    stages: Stages | None = None
    """Alternatives of each stage; null is "skip"."""
    edges: Edges | None = None
    """Paths `a -> b -> c` whose steps are the edges of the graph."""
    target: TargetSpec | None = None
    """Target on which candidates are measured; this machine's CPU by default."""
    targets: tuple[TargetSpec, ...] = Field(default=(), strict=False)
    """Several targets, instead of `target`."""
    host: HostSpec = HostSpec()
    """Host of the passes that name none."""
    model: str | dict[Name, str] | None = None
    """The source model: a path, relative to this file, or a URL; several that belong together by name, or in a folder
    or an archive. `--model` overrides it."""
    connections: dict[str, str] = Field(default_factory=dict)
    """Of several models: `part.input` -> `part.output`, where names alone do not tell."""
    pipeline: str | None = None
    """Of several models: the function of the user script that runs them, if other steps lie between them."""
    data: DataSpec = DataSpec()
    """Data for evaluation, calibration and latency."""
    user_script: str | None = None
    """Python file that defines passes, metrics or data components."""
    objectives: Objectives = ()
    """Metrics to optimize, by priority; the lowest latency_p50 if none are given."""
    constraints: tuple[ConstraintSpec, ...] | None = Field(default=None, strict=False)
    """Bounds that the best model must meet. If the field is missing, autoopt adds one on quality; `[]`: none at all."""
    search: SearchSpec = SearchSpec()
    """Strategy, sampler and budget of the search."""
    evaluate: Literal["final", "intermediate"] = "final"
    """`intermediate`: metrics are recorded for the result of every pass."""
    prefer: tuple[PreferSpec, ...] = Field(default=(), strict=False)
    """Chains or values to try first."""
    forbid: tuple[PriorSpec, ...] = Field(default=(), strict=False)
    """Chains or values to leave out."""
    require: tuple[PriorSpec, ...] = Field(default=(), strict=False)
    """Chains or values to keep to; all others are left out."""
    weights: dict[str, float] = Field(default_factory=dict)
    """Chain (name `a -> b` or id) -> how promising it is; 1 is neutral."""
    level: int | None = Field(default=None, ge=0, le=3)
    """Passes to try: 0 lossless, 1 equal up to rounding, 2 lossy ones that need no data, 3 all."""
    precision: Literal["fp32", "fp16", "mixed", "int8", "int4"] | None = None
    """The precision that a proposed graph was made for."""
    measurement: dict[str, JsonValue] = Field(default_factory=dict)
    """Settings of the meters."""
    limits: LimitsSpec = LimitsSpec()
    """Time and memory of each call in a worker."""

    @classmethod
    def refuse_other_kind(cls, value: Mapping[str, object], source: Source) -> None:
        if "models" in value and "passes" not in value:
            raise source.error(("models",), "this is a zoo, not a DAG", "run it with 'autoopt sweep'")

    @field_validator("passes", mode="before")
    @classmethod
    def _read_passes(cls, value: object) -> object:
        if isinstance(value, list | tuple) and all(isinstance(node, str) for node in value):
            value = dict.fromkeys(value)
        if not isinstance(value, dict):
            raise FieldError("must be a mapping of node ids to passes")
        if not value:
            raise FieldError("is empty", remedy="name at least one pass")
        passes = {}
        for node, fields in value.items():
            with below(node):
                check_name(node)
            if fields is None:
                fields = {}
            if isinstance(fields, dict) and not fields.get("pass"):
                fields = {**fields, "pass": node}
            passes[node] = fields
        return passes

    @field_validator(*GRAPHS, mode="before")
    @classmethod
    def _refuse_empty_graph(cls, value: object) -> object:
        if value is None:
            raise FieldError("is empty", remedy="name at least one pass")
        return value

    @field_validator("model")
    @classmethod
    def _check_parts(cls, value: str | dict[str, str] | None) -> str | dict[str, str] | None:
        if isinstance(value, dict):
            check_parts(value)
        return value

    @field_validator("target", mode="before")
    @classmethod
    def _refuse_empty_target(cls, value: object) -> object:
        if value is None:
            raise FieldError("is empty", remedy="remove it, or write {device: cpu}")
        return value

    @field_validator("weights")
    @classmethod
    def _check_weights(cls, value: dict[str, float]) -> dict[str, float]:
        for chain, weight in value.items():
            if not weight > 0:
                raise FieldError(f"must be above 0, not {weight}", place=(chain,), remedy="use forbid to leave it out")
        return value

    @model_validator(mode="after")
    def _check_together(self) -> DagSpec:
        kinds = [kind for kind in GRAPHS if getattr(self, kind) is not None]
        if not kinds:
            raise FieldError("has no graph", remedy="give exactly one of chains, stages, edges")
        if len(kinds) > 1:
            reason = f"{' and '.join(kinds)} exclude each other"
            raise FieldError(reason, place=(kinds[1],), remedy="give exactly one of chains, stages, edges")
        self._check_targets()
        if isinstance(self.model, dict):
            self._check_set()
        elif self.model is None or split_source(self.model)[0].endswith(SINGLE_MODELS):
            for field in ("connections", "pipeline"):
                if getattr(self, field):
                    raise FieldError("is for several models", place=(field,), remedy="name them in model")
        self._check_mentions()
        return self

    def _check_set(self) -> None:
        """Refuse what several models do not support."""
        if self.data.latency is not None:
            reason = "times of several models are measured on the evaluation data"
            raise FieldError(reason, place=("data", "latency"), remedy="remove it")
        if self.pipeline and self.user_script is None:
            raise FieldError("is a function of the user script", place=("pipeline",), remedy="name it in user_script")
        if self.pipeline and self.connections:
            raise FieldError(
                "pipeline says how the models connect", place=("connections",), remedy="remove one of them"
            )

    @classmethod
    def context(cls, value: Mapping[str, object]) -> object:
        """Metrics are checked one by one unless a script may define more."""
        return {CHECKS_METRICS: value.get("user_script") is None}

    def _check_targets(self) -> None:
        if self.target is not None and self.targets:
            raise FieldError("target and targets exclude each other", place=("targets",), remedy="remove one of them")
        names: list[str] = []
        for index, target in enumerate(self.targets):
            with below("targets", index):
                if target.name in names:
                    raise FieldError(f"is named {target.name!r} like another target", remedy="give each a name")
            names.append(target.name)

    def _check_mentions(self) -> None:
        unknown: list[FieldError] = []
        for node, place in self._mentions():
            if node not in self.passes:
                hint = did_you_mean(node, self.passes) or f"known: {', '.join(self.passes)}"
                unknown.append(FieldError(f"unknown node {node!r}", place=place, remedy=hint))
        if unknown:
            raise FieldErrors(unknown)
        used = {node for node, _ in self._graph_mentions()}
        for node in self.passes:
            if node not in used:
                remedy = f"name it in {self.graph_kind}, or remove it"
                raise FieldError("is in no chain", place=("passes", node), remedy=remedy)

    def _mentions(self) -> Iterator[tuple[str, Place]]:
        """Yield every node id outside of `passes`."""
        yield from self._graph_mentions()
        for node in self.search.parsed_order().mentions():
            yield node, ("search", "order")
        fields: dict[str, tuple[PriorSpec, ...]] = {
            "prefer": self.prefer,
            "forbid": self.forbid,
            "require": self.require,
        }
        for field, priors in fields.items():
            for index, prior in enumerate(priors):
                for node in (*(prior.chain or prior.nodes or ()), *prior.without):
                    yield node, (field, index)
                for node in prior.values:
                    yield node, (field, index, "values", node)

    def _graph_mentions(self) -> Iterator[tuple[str, Place]]:
        return mentions(self.graph_kind, self.chains or self.stages or self.edges or ())

    @property
    def graph_kind(self) -> GraphKind:
        """`chains`, `stages` or `edges`."""
        return next(kind for kind in GRAPHS if getattr(self, kind) is not None)

    def host_of(self, node: str) -> HostSpec:
        """The host that runs a node's pass."""
        return self.passes[node].host or self.host

    @cached_property
    def all_targets(self) -> tuple[TargetSpec, ...]:
        """The targets; this machine's CPU if none is given."""
        return self.targets or (self.target or TargetSpec(),)

    @property
    def node_objectives(self) -> dict[str, list[Objective]]:
        """The objectives of partial chains by the node that they end at, where the DAG names some."""
        objectives = {}
        for node, spec in self.passes.items():
            if spec.objectives:
                objectives[node] = [objective.objective() for objective in spec.objectives]
        return objectives

    def for_target(self, name: str) -> DagSpec:
        """Return a copy for one of the targets alone."""
        target = next(each for each in self.all_targets if each.name == name)
        copy = self.model_copy(update={"targets": (), "target": target})
        copy.__dict__.pop("all_targets", None)  # model_copy copies cached properties too
        return copy

    @property
    def data_root(self) -> str:
        """Base of relative paths of data."""
        return self._data_root or str(self._source.folder)

    @property
    def model_path(self) -> str | None:
        """The model as an absolute path or a URL; None for several."""
        return self.path(self.model) if isinstance(self.model, str) else None

    @property
    def parts(self) -> dict[str, str]:
        """The models of a set by name, as absolute paths; empty for one model."""
        if not isinstance(self.model, dict):
            return {}
        return {name: self.path(path) for name, path in self.model.items()}

    @property
    def script_path(self) -> str | None:
        """The user script as an absolute path or a URL."""
        return None if self.user_script is None else self.path(self.user_script)

    def data_json(self, which: str) -> JsonValue:
        """Return the data config of `evaluation`, `calibration` or `latency`, paths absolute; None if not given."""
        return self.data.resolved(which, self._source.folder, self._data_root, self.script_path)

    def check_files(self, *, model: bool = True, data: bool = True) -> None:
        """Check that the files named here exist; `model` and `data` tell whether to check those too.

        Raises:
            ConfigError: the first that is missing, with all others.
        """
        files: list[tuple[Place, str, str]] = []
        if self.user_script:
            files.append((("user_script",), self.user_script, self.path(self.user_script)))
        if model:
            files += [(place, file, self.path(file)) for place, file in self._model_files()]
        if data:
            files += [(("data", *place), text, self.data_path(text)) for place, text in self.data.paths()]
        mistakes = Mistakes()
        for place, text, path in files:
            with mistakes:
                self.check_exists(place, text, path)
        mistakes.raise_all()

    def _model_files(self) -> Iterator[tuple[Place, str]]:
        """Yield the model, or each of several, as written, with its place in the DAG."""
        if isinstance(self.model, str):
            yield ("model",), split_source(self.model)[0]
        elif self.model is not None:
            for name, path in self.model.items():
                yield ("model", name), path


def load_dag(given: Written | DagSpec) -> DagSpec:
    """Load the pass graph from a YAML or JSON file, a mapping or a document; a `DagSpec` is returned as it is.

    Raises:
        ConfigError: the first mistake, as `file:line: field: reason`.
    """
    return DagSpec.load(given)


SESSION_PASSES: Final = frozenset(("session_tuning", "OrtSessionParamsTuning", "OrtPerfTuning"))
"""The pass that sets session options, and its aliases."""
PARAMETER: Final = "intra_op_num_threads"


def with_thread_search(spec: DagSpec) -> DagSpec:
    """Return a copy that searches the threads of its only target; the spec itself if they are fixed.

    Every node of `session_tuning` that does not set the threads searches them. A graph without such a node gets one at
    the end of its chains, and the chain of this node alone.
    """
    target = spec.all_targets[0]
    if not target.thread_choices or len(spec.all_targets) > 1:
        return spec
    search: dict[str, JsonValue] = {"search": [*target.accelerator().thread_values]}
    nodes = {name: node for name, node in spec.passes.items() if node.pass_name in SESSION_PASSES}
    if nodes:
        searching = {name: _searching(node, search) for name, node in nodes.items()}
        return spec.model_copy(update={"passes": {**spec.passes, **searching}})
    name = "threads"
    while name in spec.passes:
        name += "_"
    added = PassNode.model_validate({"pass": "session_tuning", "params": {PARAMETER: search}})
    return spec.model_copy(update={"passes": {**spec.passes, name: added}, **_graph_with_last(spec, name)})


def _searching(node: PassNode, search: JsonValue) -> PassNode:
    if isinstance(node.params, str):
        if node.params == "search":
            return node  # searches everything that the target offers
        return node.model_copy(update={"params": {PARAMETER: search}, "search": "none"})
    if PARAMETER in node.params:
        return node
    return node.model_copy(update={"params": {**node.params, PARAMETER: search}})


def _graph_with_last(spec: DagSpec, name: str) -> dict[str, object]:
    """The field of the graph, with one more node at the end that a chain may skip."""
    if spec.stages is not None:
        return {"stages": (*spec.stages, (name, None))}
    if spec.chains is not None:
        longer = tuple((*chain, name) for chain in spec.chains)
        return {"chains": (*longer, (name,))}
    edges = spec.edges or ()
    sources = {node for path in edges for node in path[:-1]}
    leaves = dict.fromkeys(path[-1] for path in edges if path[-1] not in sources)
    return {"edges": (*edges, *((leaf, name) for leaf in leaves))}
