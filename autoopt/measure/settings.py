"""The settings of a measurement: the `measurement` section of a DAG, typed and checked. Imports no numeric library."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from autoopt.errors import InputError
from autoopt.json_codec import JsonObject, JsonTypeError, JsonValue, from_json, without_nulls
from autoopt.metrics import Constraint
from autoopt.model.roles import Kind

ROUNDS: Final = 5
"""Separate measurements of the best candidates, in turns. A machine changes its pace within seconds, so one
measurement, however long, sees little of that."""


def _setting(default: Any, summary: str) -> Any:  # noqa: ANN401  the default of a field of any type
    return field(default=default, metadata={"summary": summary})


@dataclass(frozen=True)
class ThroughputCase:
    """One row of the setting `throughput`."""

    batch_size: int = 1
    concurrency: int = 1


@dataclass(frozen=True)
class MeasurementSettings:
    """All settings with their defaults. Times are in seconds unless the name says `ms`."""

    seconds: float = _setting(5.0, "latency: time for one measurement, sessions and warm-up included (5)")
    target_width: float = _setting(
        0.04, "latency: relative width of the p50 ratio's interval that is narrow enough (0.04)"
    )
    replicas: int = _setting(8, "latency: maximum number of sessions of each model (8)")
    rounds: int = _setting(ROUNDS, "latency: rounds of the best candidates' race, twice as many if close (5); 0: none")
    max_pairs: int = _setting(4000, "latency: maximum number of pairs of blocks (4000)")
    incumbent_ratio: float | None = _setting(None, "latency: p50 ratio of the best so far, to stop early if slower")
    margin: float = _setting(1.02, "latency: factor by which a candidate must be slower than the incumbent (1.02)")
    fixed: bool = _setting(False, "latency: always use the whole time (false)")
    seed: int = _setting(0, "seed of the order of blocks and of resampling (0)")
    quiet_seconds: float = _setting(0.5, "latency: how long to wait for a quiet machine (0.5)")
    source_ms: float | None = _setting(
        None, "latency: p50 of the source on a quiet machine, to notice that the machine is slow"
    )
    affinity: tuple[int, ...] = _setting((), "latency: CPU cores to run on")
    precedence: bool = _setting(
        True, "latency: on a busy machine, models on several threads go before other programs if allowed (true)"
    )
    batch_size: int = _setting(
        0, "items per inference (the data's; else 1 for latency, as many as the model allows elsewhere)"
    )
    concurrency: int = _setting(1, "throughput: parallel inferences in one session (1)")
    throughput: tuple[ThroughputCase, ...] = _setting(
        (), "throughput: list of {batch_size, concurrency} to measure in addition; reported in the details"
    )
    profiles: tuple[Mapping[str, JsonValue], ...] = _setting(
        (), "latency: list of {name, dimensions, shapes, ranges, weight}, sizes of dynamic shapes to measure"
    )
    new_tokens: int = _setting(32, "tokens_per_second: tokens that follow a prompt before it starts again (32)")
    dimensions: Mapping[str, int] | None = _setting(None, "synthetic inputs: size by symbolic dimension")
    shapes: Mapping[str, list[int]] | None = _setting(None, "synthetic inputs: shape by input")
    ranges: Mapping[str, list[float]] | None = _setting(None, "synthetic inputs: [low, high] by input")
    image_size: tuple[int, ...] = _setting((), "synthetic inputs: [height, width] of images")
    roles: Mapping[str, Kind] | None = _setting(
        None, "kind by input, such as sound or image, if `plan` infers a wrong one"
    )
    state: Mapping[str, str] | None = _setting(None, "recurrent state: {output: input}")
    reset_every: int | None = _setting(None, "recurrent state: items after which it starts from zero again")
    samples: int = _setting(0, "fidelity: number of items to compare (as many as the model's speed allows, 16 to 1024)")
    task_output: str | int | None = _setting(None, "task metrics: name or index of the output with predictions (first)")
    sequential: bool = _setting(False, "task metrics: grow the subset until every constraint is decided (false)")
    constraints: tuple[Constraint, ...] = _setting((), "task metrics: the constraints that `sequential` decides")

    @staticmethod
    def parse(values: JsonObject) -> MeasurementSettings:
        """Read settings from JSON. Null stands for the default; names that are not settings are ignored.

        Raises:
            InputError: a value of the wrong type or out of range.
        """
        try:
            settings = from_json(MeasurementSettings, without_nulls(values))
        except JsonTypeError as error:
            raise InputError(str(error), where="measurement") from None
        settings._check_numbers()
        settings._check_synthetic_inputs()
        return settings

    @property
    def made_up(self) -> dict[str, object]:
        """The settings of synthetic inputs that the user gives."""
        names = ("dimensions", "shapes", "ranges", "image_size", "roles")
        return {name: getattr(self, name) for name in names if getattr(self, name)}

    @property
    def is_repeated(self) -> bool:
        """True if the candidates that may be the best are measured more than once."""
        return self.rounds > 0 and not self.fixed

    def _check_numbers(self) -> None:
        for name in ("seconds", "target_width", "replicas", "max_pairs", "margin"):
            value = getattr(self, name)
            _check(value > 0, f"{name!r} must be above 0, not {value!r}")
        counts = {"concurrency": 1, "new_tokens": 1, "rounds": 0, "quiet_seconds": 0, "batch_size": 0, "samples": 0}
        for name, least in counts.items():
            value = getattr(self, name)
            _check(value >= least, f"{name!r} must be at least {least}, not {value!r}")
        for name in ("replicas", "max_pairs", "concurrency", "new_tokens", "rounds", "batch_size", "samples"):
            value = getattr(self, name)
            _check(value <= MOST, f"{name!r} must be at most {MOST}, not {value!r}")
        for case in self.throughput:
            numbers = f"{case.batch_size} and {case.concurrency}"
            is_case = min(case.batch_size, case.concurrency) >= 1
            _check(is_case, f"'throughput': batch_size and concurrency must be at least 1, not {numbers}")
        _check(min(self.affinity, default=0) >= 0, f"'affinity' must be numbers of cores, not {self.affinity}")

    def _check_synthetic_inputs(self) -> None:
        sides = self.image_size
        is_size = len(sides) in (0, 2) and 1 <= min(sides, default=1) <= max(sides, default=1) <= MOST_PIXELS
        _check(is_size, f"'image_size' must be [height, width] of at most {MOST_PIXELS} pixels, not {sides}")
        for name, size in (self.dimensions or {}).items():
            _check(1 <= size < MOST_ELEMENTS, f"'dimensions': {name!r} must be from 1 to 2^40, not {size}")
        for name, sizes in (self.shapes or {}).items():
            is_shape = min(sizes, default=1) >= 1 and math.prod(sizes) < MOST_ELEMENTS
            _check(is_shape, f"'shapes': {name!r} must have sizes from 1, and less than 2^40 elements, not {sizes}")
        for name, bounds in (self.ranges or {}).items():
            is_range = len(bounds) == 2 and bounds[0] <= bounds[1]
            _check(is_range, f"'ranges': {name!r} must be [low, high], not {bounds}")


MOST: Final = 1_000_000
"""The largest count of anything: more takes longer than anybody waits."""
MOST_PIXELS: Final = 65535
"""The largest side of an image, as of JPEG."""
MOST_ELEMENTS: Final = 1 << 40
"""Elements that no input has: some terabytes."""


def _check(is_valid: bool, problem: str) -> None:
    if not is_valid:
        raise InputError(problem, where="measurement")


SETTINGS: Final[Mapping[str, str]] = {f.name: f.metadata["summary"] for f in fields(MeasurementSettings)}
"""Summary by name, so that a typo is found before anything is measured."""
