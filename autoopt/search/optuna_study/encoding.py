"""Search points as the parameters of an Optuna trial, and back.

A parameter is named `node.param`, so that equal names in two passes never mix; `node.param@parent values` where the
parents decide which values there are (a study wants one set of values for one name); the chain is `chain`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from autoopt.search.trial import ChainSpace
from autoopt.space import Point, Value

if TYPE_CHECKING:
    import optuna
    from optuna.distributions import BaseDistribution

CHAIN: Final = "chain"
Choose: TypeAlias = Callable[[str, tuple[Value, ...]], Value]


def suggest_chain(trial: optuna.Trial, chains: list[str]) -> str:
    """A chain's id asked of `trial`; where there is one only, that one."""
    return str(trial.suggest_categorical(CHAIN, chains)) if len(chains) > 1 else chains[0]


def suggest_point(trial: optuna.Trial, chain: ChainSpace) -> Point | None:
    """A point asked of `trial`, parents before children; None where the values exclude each other."""

    def choose(name: str, values: tuple[Value, ...]) -> Value:
        step = _step(values)
        if step:
            return trial.suggest_int(name, cast(int, values[0]), cast(int, values[-1]), step=step)
        shown = [_shown(value, values) for value in values]
        return values[shown.index(trial.suggest_categorical(name, shown))]

    return _walk(chain, choose)


def params_of(chain: ChainSpace, point: Point) -> dict[str, Any]:
    """A trial's parameters at `point`, without that of the chain."""
    return {name: value for name, (value, _) in _named(chain, point).items()}


def distributions_of(chain: ChainSpace, point: Point) -> dict[str, BaseDistribution]:
    """The distributions that `suggest_point` asks on its way to `point`."""
    from optuna.distributions import CategoricalDistribution, IntDistribution

    def distribution(values: tuple[Value, ...]) -> BaseDistribution:
        step = _step(values)
        if step:
            return IntDistribution(cast(int, values[0]), cast(int, values[-1]), step=step)
        return CategoricalDistribution([_shown(value, values) for value in values])

    return {name: distribution(values) for name, (_, values) in _named(chain, point).items()}


def read_point(chain: ChainSpace, params: Mapping[str, Any]) -> Point | None:
    """The point of a trial's parameters; None where they are not those of a point of the chain."""

    def choose(name: str, values: tuple[Value, ...]) -> Value:
        shown = [value if _step(values) else _shown(value, values) for value in values]
        if name not in params or params[name] not in shown:
            raise LookupError(name)
        return values[shown.index(params[name])]

    try:
        return _walk(chain, choose)
    except LookupError:
        return None


def _walk(chain: ChainSpace, choose: Choose) -> Point | None:
    point: Point = {}
    for node, space in chain.space.nodes.items():
        made = space.walk(partial(_in_node, choose, node))
        if made is None:
            return None
        if made:
            point[node] = made
    return point if chain.space.allows(point) else None


def _in_node(choose: Choose, node: str, name: str, values: tuple[Value, ...]) -> Value:
    return choose(f"{node}.{name}", values)


def _named(chain: ChainSpace, point: Point) -> dict[str, tuple[Any, tuple[Value, ...]]]:
    """Of each parameter at `point`: how its value stands in a study, and all its values."""
    named: dict[str, tuple[Any, tuple[Value, ...]]] = {}
    for node, space in chain.space.nodes.items():

        def note(name: str, values: tuple[Value, ...], node: str = node) -> Value:
            value = point[node][name.split("@")[0]]
            named[f"{node}.{name}"] = (value if _step(values) else _shown(value, values), values)
            return value

        space.walk(note)
    return named


def _step(values: tuple[Value, ...]) -> int:
    """The step of evenly rising whole numbers, which a study takes as numbers; 0 where they are something else."""
    if len(values) < 3 or not all(isinstance(v, int) and not isinstance(v, bool) for v in values):
        return 0
    steps = {b - a for a, b in pairwise(cast("tuple[int, ...]", values))}
    return max(0, steps.pop()) if len(steps) == 1 else 0


def _shown(value: Value, values: tuple[Value, ...]) -> Any:
    """How a value stands in a study: Optuna holds no lists, and takes `True` for `1`."""
    plain = all(v is None or isinstance(v, (bool, int, float, str)) for v in values)
    mixed = any(isinstance(v, bool) for v in values) and any(type(v) in (int, float) for v in values)
    return value if plain and not mixed else json.dumps(value, sort_keys=True)
