"""The configuration of a search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Literal, TypeAlias, get_args

from autoopt.errors import InputError, did_you_mean

StrategyName: TypeAlias = Literal["unified", "per-chain"]
Allocation: TypeAlias = Literal["sequential", "round_robin", "successive_halving", "max_ucb"]
Choose: TypeAlias = Literal["priority", "weights", "knee"]

JOINT: Final = "joint"
PASS_BY_PASS: Final = "pass-by-pass"


@dataclass(frozen=True)
class SearchConfig:
    """How to search; the `search:` section of dag.yaml.

    strategy: `unified` allocates over chains and parameters at once; `per-chain` is a study for each chain.
    sampler: unified: `surrogate` (default) or `tpe`. per-chain: `exhaustive`, `random`, `tpe` (default), `surrogate`,
        or any Optuna sampler by name (`NSGAIISampler`, `qmc`).
    order: `joint`, `pass-by-pass`, a chain of groups `[a, [b, c], d]`, or `{nested: [a, [b, c]]}`, which may also be a
        group of a chain; all but `joint` need per-chain. Nodes that no group names go with the group that follows
        them, or the last.
    allocation: how per-chain shares the trials out.
    keep: how many of the best partial chains a stage hands on to the next.
    trials: at most so many (None: as many as there are points). minutes: the engine's budget of time.
    batch: how many trials the engine has under way at once, at least; never fewer than it has workers.
    with_replacement: `random` may repeat a point; needs `trials` or `minutes`.
    stop_when_goals_met: end once a whole chain respects every constraint.
    min_expected_improvement: end once no point promises to improve the objective by this fraction (0.01: 1 %).
    choose: how a single best model is chosen where there are several objectives.
    """

    strategy: StrategyName = "unified"
    sampler: str = ""
    order: Any = JOINT
    allocation: Allocation = "round_robin"
    keep: int = 1
    trials: int | None = None
    minutes: float | None = None
    seed: int = 0
    batch: int = 1
    with_replacement: bool = False
    stop_when_goals_met: bool = False
    min_expected_improvement: float | None = None
    choose: Choose = "priority"

    def __post_init__(self) -> None:
        _one_of("strategy", self.strategy, get_args(StrategyName))
        _one_of("allocation", self.allocation, get_args(Allocation))
        _one_of("choose", self.choose, get_args(Choose))
        for name, low in (("keep", 1), ("batch", 1), ("seed", 0)):
            _at_least(name, getattr(self, name), low)
        for name in ("with_replacement", "stop_when_goals_met"):
            if not isinstance(getattr(self, name), bool):
                raise InputError(f"{name} must be true or false, not {getattr(self, name)!r}", where="search")
        for name in ("minutes", "min_expected_improvement"):
            if not isinstance(getattr(self, name), (int, float, type(None))):
                raise InputError(f"{name} must be a number, not {getattr(self, name)!r}", where="search")
        if self.trials is not None:
            _at_least("trials", self.trials, 1)
        if self.minutes is not None and not 0 < self.minutes < float("inf"):
            raise InputError(f"minutes must be above 0, not {self.minutes}", where="search")
        if self.min_expected_improvement is not None and not 0 <= self.min_expected_improvement < 1:
            raise InputError(
                f"min_expected_improvement must be a fraction in 0..1, not {self.min_expected_improvement}",
                where="search",
            )
        self._check_together()

    def _check_together(self) -> None:
        if self.strategy == "unified":
            if self.order != JOINT:
                raise InputError(
                    "strategy unified takes only order: joint", where="search", remedy="use strategy: per-chain"
                )
            if self.sampler not in ("", "surrogate", "tpe"):
                raise InputError(
                    f"strategy unified takes sampler surrogate or tpe, not {self.sampler!r}",
                    where="search",
                    remedy="use strategy: per-chain",
                )
        if self.with_replacement and self.sampler != "random":
            raise InputError("with_replacement goes with sampler: random", where="search")
        if self.with_replacement and self.trials is None and self.minutes is None:
            raise InputError("with_replacement never ends by itself", where="search", remedy="give trials or minutes")
        if self.min_expected_improvement is not None and self.sampler_name != "surrogate":
            raise InputError("min_expected_improvement goes with sampler: surrogate", where="search")
        if self.order != JOINT and self.allocation in ("successive_halving", "max_ucb"):
            raise InputError(f"allocation {self.allocation} goes with order: joint", where="search")
        if self.order != JOINT and self.with_replacement:
            raise InputError("with_replacement goes with order: joint", where="search")

    def overridden(self, changes: Mapping[str, Any]) -> SearchConfig:
        """With other values of some fields.

        Raises:
            InputError: no such field, or a value that it cannot have.
        """
        known = [each.name for each in fields(self)]
        for name in changes:
            if name not in known:
                hint = did_you_mean(name, known) or f"known: {', '.join(known)}"
                raise InputError(f"unknown field {name!r}", where="search", remedy=hint)
        return replace(self, **changes)

    @property
    def sampler_name(self) -> str:
        """The sampler, or the strategy's default one."""
        return self.sampler or ("surrogate" if self.strategy == "unified" else "tpe")


def _one_of(name: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        hint = did_you_mean(str(value), known) or f"one of {', '.join(known)}"
        raise InputError(f"unknown {name} {value!r}", where="search", remedy=hint)


def _at_least(name: str, value: int, low: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise InputError(f"{name} must be a whole number of at least {low}, not {value!r}", where="search")
