"""The space of a pass node: the pass's parameters and what the user set of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from autoopt.data.digest import digest_path
from autoopt.errors import InputError
from autoopt.registry import REQUIRED, ParameterInfo, PassInfo
from autoopt.space import IGNORED, INVALID, Categorical, Conditional, NodeSpace, SearchParameter
from autoopt.spec import DagSpec
from autoopt.spec.pass_settings import Fixed, OwnDefault, OwnSearch, Searched, Setting
from autoopt.spec.source import Place

_SENTINELS: Final = (INVALID, IGNORED)


def node_space(spec: DagSpec, node: str, info: PassInfo) -> NodeSpace:
    """The space of `node`, whose pass is `info`.

    Raises:
        ConfigError: an unknown parameter, a value it cannot take, a required one that is missing, parameters that
            depend on each other in a cycle; at the line of the mistake.
    """
    written = spec.passes[node]
    search: dict[str, SearchParameter] = {}
    fixed: dict[str, Any] = {}
    for name, setting in written.settings.items():
        place: Place = ("passes", node, "params", name)
        try:
            parameter = info.parameter(name)
        except InputError as error:
            raise spec.error(place, error.what, error.remedy) from None
        _set(spec, place, parameter, setting, search, fixed)
    fixed.update({name: value for name, value in info.presets.items() if name not in written.settings})
    if written.searches_all(spec.search.params):
        own = {p.name: p.search for p in info.parameters if p.search is not None}
        search.update({name: values for name, values in own.items() if name not in {*written.settings, *info.presets}})
    for parameter in info.parameters:
        if parameter.default is REQUIRED and parameter.name not in search and parameter.name not in fixed:
            remedy = f"give params: {{{parameter.name}: ...}}"
            raise spec.error(("passes", node), f"pass {info.name!r} needs parameter {parameter.name!r}", remedy)
    _condition(info, search, fixed)
    space = NodeSpace(search, fixed, info.defaults)
    try:
        space.count  # noqa: B018  # parents that are missing or cyclic show here
    except InputError as error:
        raise spec.error(("passes", node, "params"), error.what, error.remedy) from None
    return space


def _set(
    spec: DagSpec,
    place: Place,
    parameter: ParameterInfo,
    setting: Setting,
    search: dict[str, SearchParameter],
    fixed: dict[str, Any],
) -> None:
    """Put one parameter that the user set into `search` or `fixed`."""
    match setting:
        case OwnSearch():
            if parameter.search is None and parameter.withdrawn and parameter.default is not REQUIRED:
                return  # this accelerator has no use for other values than the default
            if parameter.search is None:
                reason = f"parameter {parameter.name!r} has no search values of its own"
                raise spec.error(place, reason, "write {search: [...]}")
            search[parameter.name] = parameter.search
        case OwnDefault():
            if parameter.default is REQUIRED:
                raise spec.error(place, f"parameter {parameter.name!r} has no default", "give a value")
        case Searched(values):
            for index, value in enumerate(values.values()):
                at = (*place, "search", index) if isinstance(values, Categorical) else place
                _check(spec, at, parameter, value)
            if parameter.category == "path":
                files = enumerate(values.values())
                values = Categorical([_local_file(spec, (*place, "search", index), file) for index, file in files])
            search[parameter.name] = values
        case Fixed(value):
            _check(spec, place, parameter, value)
            fixed[parameter.name] = _local_file(spec, place, value) if parameter.category == "path" else value


def _check(spec: DagSpec, place: Place, parameter: ParameterInfo, value: Any) -> None:
    reason = parameter.check(value)
    if reason is not None:
        raise spec.error(place, reason)


def _local_file(spec: DagSpec, place: Place, value: Any) -> Any:
    """A `path` parameter as an absolute path of a file that is there."""
    if not isinstance(value, str) or "://" in value:
        return value
    path = spec.path(value)
    if not Path(path).exists():
        raise spec.error(place, f"no such file: {value}", f"looked for {path}")
    return path


def file_digests(spec: DagSpec, info: PassInfo, space: NodeSpace) -> dict[str, str]:
    """Digests of the content of all files and folders that the parameters of a node may name, by what is written."""
    found: dict[str, str] = {}
    for parameter in (p for p in info.parameters if p.category in ("path", "data")):
        searched, name = space.search.get(parameter.name), parameter.name
        for value in all_values(searched) if searched is not None else (space.fixed.get(name),):
            if isinstance(value, str) and value:
                path = Path(spec.data_path(value) if parameter.category == "data" else value)
                found.update({value: digest_path(path)} if path.exists() else {})
    return found


def _condition(info: PassInfo, search: dict[str, SearchParameter], fixed: dict[str, Any]) -> None:
    """Let the pass's own conditions hold for the user's values, too: what is invalid or ignored beside a searched
    parent stays so."""
    for parameter in info.parameters:
        own = parameter.search
        if not isinstance(own, Conditional) or search.get(parameter.name) is own:
            continue
        numeric = not _enumerated(own)
        if parameter.name in search:
            search[parameter.name] = _within(own, search[parameter.name].values(), numeric)
        elif parameter.name in fixed and any(p in search for p in own.parents):
            search[parameter.name] = _within(own, (fixed.pop(parameter.name),), numeric)


def _enumerated(own: Conditional) -> bool:
    """Whether the values are names or switches (a choice among given ones), not numbers."""
    return not any(isinstance(v, (int, float)) and not isinstance(v, bool) for v in all_values(own))


def _within(own: Conditional, values: tuple[Any, ...], numeric: bool) -> Conditional:
    """`own` with the user's values for its own: those that each branch allows, or all where they are numbers."""

    def branch(item: Any) -> Any:
        if any(item is s for s in _SENTINELS):
            return item
        if isinstance(item, Conditional):
            return _within(item, values, numeric)
        kept = [v for v in values if numeric or any(same(v, own_value) for own_value in item.values())]
        return Categorical(kept) if kept else INVALID

    return Conditional(own.parents, {key: branch(item) for key, item in own.support}, branch(own.default))


def without_value(space: NodeSpace, name: str, value: Any) -> NodeSpace:
    """`space` less one value of one searched parameter."""

    def less(item: Any) -> Any:
        if any(item is s for s in _SENTINELS):
            return item
        if isinstance(item, Conditional):
            return Conditional(item.parents, {k: less(b) for k, b in item.support}, less(item.default))
        kept = [v for v in item.values() if not same(v, value)]
        return Categorical(kept) if kept else INVALID

    if name not in space.search:
        return space
    return NodeSpace({**space.search, name: less(space.search[name])}, space.fixed, space.defaults)


def all_values(parameter: Any) -> tuple[Any, ...]:
    """Every value that a search parameter can take under any condition."""
    if isinstance(parameter, Conditional):
        found: list[Any] = []
        for branch in [branch for _, branch in parameter.support] + [parameter.default]:
            found += [v for v in all_values(branch) if not any(same(v, f) for f in found)]
        return tuple(found)
    return parameter.values() if isinstance(parameter, SearchParameter) else ()


def same(a: Any, b: Any) -> bool:
    """Equal as JSON values: `True` is not `1`."""
    return isinstance(a, bool) == isinstance(b, bool) and bool(a == b)
