"""Search points as the parameters of an Optuna trial.

A parameter is named `node.param=values`, so that equal names in two passes never mix. A study wants the same values
each time for a name, and chains that share a node may search different ones. Where its parents decide which values it
has, the name is `node.param@parent values=values`. The parameter `chain` is the chain.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Final, TypeAlias

from autoopt.search.trial import ChainSpace
from autoopt.space import Point, Value

if TYPE_CHECKING:
    import optuna

CHAIN: Final = "chain"
Params: TypeAlias = dict[str, object]
"""Parameters of a trial, by name."""
Select: TypeAlias = Callable[[str, str, tuple[Value, ...]], Value]
"""(node, name of its parameter, values) -> one of the values."""


def suggest_chain(trial: optuna.Trial, chains: list[str]) -> str:
    """Ask `trial` for a chain's id if there are several."""
    if len(chains) == 1:
        return chains[0]
    return str(trial.suggest_categorical(CHAIN, chains))


def suggest_point(trial: optuna.Trial, chain: ChainSpace) -> Point | None:
    """Ask `trial` for a point, parents before children; None if the values exclude each other."""

    def select(node: str, name: str, values: tuple[Value, ...]) -> Value:
        grid = _integer_grid(values)
        if grid is not None:
            low, high, step = grid
            return trial.suggest_int(_full_name(node, name, values), low, high, step=step)
        choices = [_encode(value, values) for value in values]
        return values[choices.index(trial.suggest_categorical(_full_name(node, name, values), choices))]

    return _walk(chain, select)


def params_of(chain: ChainSpace, point: Point) -> Params:
    """Encode a point as the parameters of a trial, without the chain."""
    params: Params = {}

    def select(node: str, name: str, values: tuple[Value, ...]) -> Value:
        value = point[node][name.split("@")[0]]
        params[_full_name(node, name, values)] = _encode(value, values)
        return value

    _walk(chain, select)
    return params


def _walk(chain: ChainSpace, select: Select) -> Point | None:
    """Select a point parameter by parameter."""
    point: Point = {}
    for node, space in chain.space.nodes.items():
        settings = space.walk(partial(select, node))
        if settings is None:
            return None
        if settings:
            point[node] = settings
    if not chain.space.allows(point):
        return None
    return point


def _full_name(node: str, name: str, values: tuple[Value, ...]) -> str:
    return f"{node}.{name}={json.dumps(values, sort_keys=True)}"


def _integer_grid(values: tuple[Value, ...]) -> tuple[int, int, int] | None:
    """Return (low, high, step) of evenly rising whole numbers, which a study treats as numbers."""
    integers = [value for value in values if isinstance(value, int) and not isinstance(value, bool)]
    if len(integers) < len(values) or len(values) < 3:
        return None
    steps = {b - a for a, b in pairwise(integers)}
    step = steps.pop()
    if steps or step <= 0:
        return None
    return integers[0], integers[-1], step


def _encode(value: Value, values: tuple[Value, ...]) -> bool | int | float | str | None:
    """Encode a value for a study: Optuna holds no lists, and confuses `True` with `1`."""
    booleans = numbers = False
    plain = True
    for each in values:
        if isinstance(each, bool):
            booleans = True
        elif isinstance(each, int | float):
            numbers = True
        elif not isinstance(each, str | None):
            plain = False
    if plain and not (booleans and numbers) and isinstance(value, bool | int | float | str | None):
        return value
    return json.dumps(value, sort_keys=True)
