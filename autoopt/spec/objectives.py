"""The user's goal: `objectives:` and `constraints:`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, ValidationInfo, model_validator

from autoopt.errors import InputError
from autoopt.metrics import METRICS, Constraint, Direction, Objective, get_metric, known_metric
from autoopt.spec.source import FieldError
from autoopt.spec.strict_model import StrictModel


def check_metric(name: str) -> None:
    """Check that autoopt has a metric.

    Raises:
        FieldError: unknown; names the nearest.
    """
    try:
        get_metric(name)
    except InputError as error:
        raise FieldError(error.what, remedy=error.remedy) from error


CHECKS_METRICS = "check metrics"
"""Entry of the validation context that is true if all metrics are autoopt's own."""


def _check_known(name: str, info: ValidationInfo) -> str:
    if isinstance(info.context, Mapping) and info.context.get(CHECKS_METRICS):
        check_metric(name)
    return name


MetricName = Annotated[str, AfterValidator(_check_known)]


class ObjectiveSpec(StrictModel):
    """A metric to optimize, in its own direction unless `goal` gives one. A bare text is the metric."""

    short: ClassVar[str] = "metric"

    metric: MetricName
    """A built-in metric, or one of the user script."""
    goal: Literal["minimize", "maximize"] | None = None
    """The metric's own direction if it is not given."""
    weight: float = Field(default=1.0, gt=0)
    """Weight among several objectives, for `choose: weights`."""

    def objective(self, direction: Direction = "maximize") -> Objective:
        """Return the objective; `direction` is the direction of a metric that a user script defines."""
        if self.metric in METRICS:
            direction = METRICS[self.metric].direction
        return Objective(self.metric, self.goal or direction, self.weight)


def _not_empty(objectives: tuple[ObjectiveSpec, ...]) -> tuple[ObjectiveSpec, ...]:
    if not objectives:
        raise FieldError("is empty", remedy="name a metric, or remove the field")
    return objectives


Objectives = Annotated[tuple[ObjectiveSpec, ...], Field(strict=False), AfterValidator(_not_empty)]
"""By priority; at least one if the field is given."""


class ConstraintSpec(StrictModel):
    """Bounds of a metric. Ratios are candidate / source; `max_drop` is absolute, in the direction of worse."""

    metric: MetricName
    """A built-in metric, or one of the user script."""
    min: float | None = None
    """Lowest value, in the unit of the metric."""
    max: float | None = None
    """Highest value, in the unit of the metric."""
    min_ratio: float | None = Field(default=None, ge=0)
    """Lowest candidate / source."""
    max_ratio: float | None = Field(default=None, ge=0)
    """Highest candidate / source; 0.5 is half the size or time of the source."""
    max_drop: float | None = Field(default=None, ge=0)
    """Largest loss compared with the source, in the unit of the metric; 0.01 is one point of accuracy."""
    confidence: float | None = Field(default=None, gt=0, lt=1)
    """Probability with which the bound must hold; if it is not given, the measured value decides."""

    @model_validator(mode="after")
    def _check_bounds(self) -> ConstraintSpec:
        bounds = (self.min, self.max, self.min_ratio, self.max_ratio, self.max_drop)
        if bounds == (None,) * len(bounds):
            raise FieldError("needs a bound", remedy="give one of min, max, min_ratio, max_ratio, max_drop")
        for low, high in ((self.min, self.max), (self.min_ratio, self.max_ratio)):
            if low is not None and high is not None and low > high:
                raise FieldError(f"can never hold: {low} is above {high}")
        metric = known_metric(self.metric)
        if metric is not None and self.max_drop is not None:
            try:
                metric.check_drop(self.max_drop)
            except InputError as error:
                raise FieldError(error.what, place=("max_drop",), remedy=error.remedy) from error
        return self

    def constraint(self) -> Constraint:
        """Return the constraint that candidates are judged by."""
        return Constraint(**self.model_dump())
