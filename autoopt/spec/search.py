"""How to search: the `search:` section."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from autoopt.spec.source import FieldError
from autoopt.spec.strict_model import StrictModel


class SearchSpec(StrictModel):
    """Strategy, order and budget; a bare `all` or `none` is `params`."""

    short: ClassVar[str] = "params"

    params: Literal["all", "none"] = "none"
    """Whether parameters that a node does not set are searched."""
    strategy: Literal["unified", "per-chain"] = "unified"
    sampler: str = ""
    """unified: `surrogate` (default) or `tpe`; per-chain: `exhaustive`, `random`, `tpe` (default), or Optuna's."""
    order: Any = "joint"
    """`joint`, `pass-by-pass`, a chain of groups `[a, [b, c], {nested: [d, e]}]`, or `{nested: [a, [b, c]]}`."""
    allocation: Literal["sequential", "round_robin", "successive_halving", "max_ucb"] = "round_robin"
    keep: int = Field(default=1, ge=1)
    """How many of the best partial chains a stage of the order hands on."""
    trials: int | None = Field(default=None, ge=1)
    minutes: float | None = Field(default=None, gt=0)
    seed: int = Field(default=0, ge=0, lt=2**32)
    batch: int = Field(default=1, ge=1)
    """How many trials are under way at once; never fewer than there are workers."""
    with_replacement: bool = False
    stop_when_goals_met: bool = False
    min_expected_improvement: float | None = Field(default=None, ge=0, lt=1)
    """End once no point promises to improve the objective by this fraction."""
    choose: Literal["priority", "weights", "knee"] = "priority"
    """How one best model is chosen where there are several objectives."""

    @model_validator(mode="after")
    def _together(self) -> SearchSpec:
        self._check_order()
        if self.strategy == "unified":
            if self.order != "joint":
                raise FieldError(
                    "strategy unified takes only joint", place=("order",), remedy="use strategy: per-chain"
                )
            if self.sampler not in ("", "surrogate", "tpe"):
                reason = f"strategy unified takes surrogate or tpe, not {self.sampler!r}"
                raise FieldError(reason, place=("sampler",), remedy="use strategy: per-chain")
        if self.with_replacement:
            if self.sampler != "random":
                raise FieldError("goes with sampler: random", place=("with_replacement",))
            if self.trials is None and self.minutes is None:
                raise FieldError("never ends by itself", place=("with_replacement",), remedy="give trials or minutes")
        if self.order != "joint" and self.allocation in ("successive_halving", "max_ucb"):
            raise FieldError(f"{self.allocation} goes with order: joint", place=("allocation",))
        return self

    def _check_order(self) -> None:
        if isinstance(self.order, str):
            if self.order not in ("joint", "pass-by-pass"):
                remedy = "joint, pass-by-pass, [a, [b, c], d] or {nested: [a, [b, c]]}"
                raise FieldError(f"unknown order {self.order!r}", place=("order",), remedy=remedy)
            return
        self.groups()

    def groups(self) -> tuple[tuple[str, ...], ...]:
        """The groups of node ids of a chained or nested order, outermost first; empty for the two named orders.

        Raises:
            FieldError: malformed.
        """
        if isinstance(self.order, str):
            return ()
        items, place = self.order, ("order",)
        if isinstance(items, dict):
            if set(items) != {"nested"}:
                raise FieldError("must be a list of groups or {nested: [...]}", place=place)
            items, place = items["nested"], ("order", "nested")  # type: ignore[assignment]
        if not isinstance(items, (list, tuple)) or not items:
            raise FieldError("must be a list of groups", place=place)
        groups: list[tuple[str, ...]] = []
        seen: set[str] = set()
        for index, item in enumerate(items):
            group = _names(item)
            if group is None:
                raise FieldError("must be a node id, a group or {nested: [...]}", place=(*place, index))
            for node in group:
                if not isinstance(node, str):
                    raise FieldError(f"must be a node id, not {node!r}", place=(*place, index))
                if node in seen:
                    raise FieldError(f"node {node!r} is named twice", place=(*place, index))
                seen.add(node)
            groups.append(group)
        return tuple(groups)

    def config(self) -> dict[str, Any]:
        """The arguments of the search configuration."""
        return self.model_dump(exclude={"params"})


def _names(item: Any) -> tuple[Any, ...] | None:
    """The node ids of a group, of a nested one in order; None where it is malformed."""
    if not isinstance(item, dict):
        return tuple(item) if isinstance(item, (list, tuple)) else (item,)
    inner = item.get("nested") if set(item) == {"nested"} else None
    if not isinstance(inner, (list, tuple)) or not inner:
        return None
    parts = [_names(part) for part in inner]
    return None if None in parts else tuple(name for part in parts for name in part or ())
