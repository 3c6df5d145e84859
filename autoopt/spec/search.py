"""The search settings: one schema for `search:` in dag.yaml, for the command line and for Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal, Self, TypeAlias

from pydantic import Field, ModelWrapValidatorHandler, ValidationError, field_validator, model_validator

from autoopt.spec.order import Order, parse_order
from autoopt.spec.samplers import (
    DEFAULT_SAMPLER,
    SAMPLERS,
    SamplerInfo,
    SamplerOption,
    StrategyName,
    find_sampler,
    short_name,
)
from autoopt.spec.source import FieldError
from autoopt.spec.strict_model import StrictModel
from autoopt.spec.validation import input_error

AllocationName: TypeAlias = Literal["sequential", "round_robin", "successive_halving", "max_ucb"]
Choose: TypeAlias = Literal["priority", "weights", "knee"]


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
