"""The search settings: one schema for `search:` in dag.yaml, for the command line and for Python.

`SAMPLERS` lists what `search.sampler` may name: a new sampler is a class in `autoopt.search.samplers` and one line
here. `parse_order` reads `search.order`, the order in which the passes of a chain are searched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import ClassVar, Final, Literal, Self, TypeAlias

from pydantic import Field, ModelWrapValidatorHandler, ValidationError, field_validator, model_validator

from autoopt.errors import did_you_mean
from autoopt.spec.source import FieldError, Place
from autoopt.spec.strict_model import StrictModel, input_error

StrategyName: TypeAlias = Literal["unified", "per-chain"]
SamplerOption: TypeAlias = Literal["with_replacement", "min_expected_improvement"]
AllocationName: TypeAlias = Literal["sequential", "round_robin", "successive_halving", "max_ucb"]
Choose: TypeAlias = Literal["priority", "weights", "knee"]


@dataclass(frozen=True)
class SamplerInfo:
    """A sampler by its name in dag.yaml."""

    name: str
    implementation: str
    """`module:class` in `autoopt.search.samplers`; the class takes `SamplerInputs`."""
    strategies: tuple[StrategyName, ...] = ("per-chain",)
    options: tuple[SamplerOption, ...] = ()
    """Fields of the search section that only some samplers take."""
    requires: tuple[str, ...] = ()
    """Packages that it imports and that autoopt does not depend on."""


OPTUNA: Final = "optuna_sampler:OptunaSampler"
SAMPLERS: Final = (
    SamplerInfo("surrogate", "surrogate:SurrogateSampler", ("unified", "per-chain"), ("min_expected_improvement",)),
    SamplerInfo("exhaustive", "plain:ExhaustiveSampler"),
    SamplerInfo("random", "plain:RandomSampler", options=("with_replacement",)),
    # Optuna's, by class name; each may also be named without "Sampler" in lower case (`tpe`, `nsga-ii`).
    SamplerInfo("TPESampler", OPTUNA, ("unified", "per-chain")),
    SamplerInfo("BruteForceSampler", OPTUNA),
    SamplerInfo("CmaEsSampler", OPTUNA, requires=("cmaes",)),
    SamplerInfo("GPSampler", OPTUNA, requires=("scipy", "torch")),
    SamplerInfo("NSGAIISampler", OPTUNA),
    SamplerInfo("NSGAIIISampler", OPTUNA),
    SamplerInfo("QMCSampler", OPTUNA, requires=("scipy",)),
    SamplerInfo("RandomSampler", OPTUNA),
)
DEFAULT_SAMPLER: Final[dict[StrategyName, str]] = {"unified": "surrogate", "per-chain": "tpe"}


def short_name(sampler: SamplerInfo) -> str:
    """`tpe` for `TPESampler`; the name itself for autoopt's own samplers."""
    return sampler.name.removesuffix("Sampler").lower()


def find_sampler(name: str) -> SamplerInfo:
    """Look up a sampler by name or short name.

    Raises:
        FieldError: no such sampler, or it needs a package that is not installed.
    """
    sampler = _match(name)
    if sampler is None:
        names = list(map(short_name, SAMPLERS))
        every = dict.fromkeys([*names, *(sampler.name for sampler in SAMPLERS)])
        hint = did_you_mean(name, every) or f"known: {', '.join(dict.fromkeys(names))}"
        raise FieldError(f"unknown sampler {name!r}", remedy=hint)
    for package in sampler.requires:
        if find_spec(package) is None:
            reason = f"sampler {name!r} needs the package {package}, which is not installed"
            raise FieldError(reason, remedy=f"pip install {package}")
    return sampler


def _match(name: str) -> SamplerInfo | None:
    for sampler in SAMPLERS:
        if sampler.name == name:
            return sampler
    simple_name = name.lower().replace("_", "").replace("-", "")
    for sampler in SAMPLERS:
        if sampler.name.endswith("Sampler") and short_name(sampler) == simple_name:
            return sampler
    return None


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


class SearchFields(StrictModel):
    """The fields, each valid by itself: overrides of another search are such."""

    strategy: StrategyName = "unified"
    """`unified` allocates trials over chains and parameters at once; `per-chain` runs a study for each chain."""
    sampler: str = ""
    """unified: `surrogate` (default) or `tpe`; per-chain: `exhaustive`, `random`, `tpe` (default), or Optuna's."""
    order: object = "joint"
    """`joint`, `pass-by-pass`, a chain of groups `[a, [b, c], {nested: [d, e]}]`, or `{nested: [a, [b, c]]}`."""
    allocation: AllocationName = "round_robin"
    """The method of strategy per-chain to divide the trials among the chains."""
    keep: int = Field(default=1, ge=1)
    """Number of the best partial chains that a stage of the order passes to the next stage."""
    trials: int | None = Field(default=None, ge=1)
    """Maximum number of trials with distinct candidates; as many as there are points if it is not given."""
    minutes: float | None = Field(default=None, gt=0)
    """Time limit, which the engine enforces."""
    seed: int = Field(default=0, ge=0, lt=2**32)
    """Seed of the sampler."""
    batch: int = Field(default=1, ge=1)
    """Number of trials under way at once; never fewer than there are workers."""
    with_replacement: bool = False
    """`random` may repeat a point."""
    stop_when_goals_met: bool = False
    """End once a whole chain meets every constraint."""
    min_expected_improvement: float | None = Field(default=None, ge=0, lt=1)
    """End once no point is expected to improve the objective by this fraction."""
    stop_early: bool = True
    """End once little more can be gained, or the known best of a model with the same graph is confirmed."""
    min_gain_per_minute: float = Field(default=0.005, ge=0, lt=1)
    """Expected gain per minute, as a fraction of the best candidate, below which `stop_early` ends the search."""
    choose: Choose = "priority"
    """Rule that chooses one best model when there are several objectives."""

    @field_validator("sampler")
    @classmethod
    def _check_sampler(cls, value: str) -> str:
        if value:
            find_sampler(value)
        return value

    @field_validator("order")
    @classmethod
    def _check_order(cls, value: object) -> object:
        parse_order(value)
        return value

    @property
    def sampler_name(self) -> str:
        """The sampler, or the default of the strategy."""
        return self.sampler or DEFAULT_SAMPLER[self.strategy]

    def parsed_order(self) -> Order:
        """The order as groups of nodes."""
        return parse_order(self.order)


class _Search(SearchFields):
    """The fields of one search together."""

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        sampler = find_sampler(self.sampler_name)
        joint = self.parsed_order().kind == "joint"
        if self.strategy == "unified" and not joint:
            raise FieldError("strategy unified takes only joint", place=("order",), remedy="use strategy: per-chain")
        if self.strategy not in sampler.strategies:
            names = " or ".join(short_name(info) for info in SAMPLERS if self.strategy in info.strategies)
            reason = f"strategy {self.strategy} takes {names}, not {self.sampler!r}"
            raise FieldError(reason, place=("sampler",), remedy="use strategy: per-chain")
        if self.with_replacement:
            _check_replacement(self, sampler, joint=joint)
        if self.min_expected_improvement is not None:
            _check_option("min_expected_improvement", sampler)
        if not joint and self.allocation in ("successive_halving", "max_ucb"):
            raise FieldError(f"{self.allocation} needs order: joint", place=("allocation",))
        return self


class SearchSpec(_Search):
    """The `search:` section. A bare `all` or `none` is `params`."""

    short: ClassVar[str] = "params"

    params: Literal["all", "none"] = "none"
    """True to search parameters that a node does not set."""

    def config(self) -> SearchConfig:
        """The section without `params`, which planning uses and the search does not."""
        return SearchConfig.model_construct(**self.model_dump(exclude={"params"}))


class SearchConfig(_Search):
    """A search as `create_study` takes it.

    Raises:
        InputError: a value that a field cannot have, or fields that exclude each other.
    """

    @model_validator(mode="wrap")
    @classmethod
    def _raise_input_error(cls, value: object, handler: ModelWrapValidatorHandler[SearchConfig]) -> SearchConfig:
        try:
            return handler(value)
        except ValidationError as error:
            raise input_error(error, "search") from None

    @property
    def content(self) -> dict[str, object]:
        """The identity of the search."""
        return self.model_dump()

    def overridden(self, changes: Mapping[str, object]) -> SearchConfig:
        """Return a copy with other values of some fields.

        Raises:
            InputError: no such field, a value that it cannot have, or fields that exclude each other.
        """
        SearchConfig.model_validate({**self.model_dump(), **changes})
        # The values as given: 3 stays 3 where validation makes 3.0 of it, because the run's identity depends on them.
        return self.model_copy(update=dict(changes))


def _check_replacement(fields: SearchFields, sampler: SamplerInfo, *, joint: bool) -> None:
    """Refuse sampling with replacement where it cannot work."""
    _check_option("with_replacement", sampler)
    if not joint:
        raise FieldError("needs order: joint", place=("with_replacement",))
    if fields.trials is None and fields.minutes is None:
        raise FieldError("never ends by itself", place=("with_replacement",), remedy="give trials or minutes")


def _check_option(option: SamplerOption, sampler: SamplerInfo) -> None:
    """Refuse an option that the sampler does not take."""
    if option not in sampler.options:
        names = " or ".join(short_name(info) for info in SAMPLERS if option in info.options)
        raise FieldError(f"needs sampler: {names}", place=(option,))
