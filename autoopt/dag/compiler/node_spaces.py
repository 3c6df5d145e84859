"""The space of a pass node: the pass's parameters and the user's settings for them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from autoopt.data.digest import digest_path
from autoopt.errors import InputError, Mistakes
from autoopt.registry import REQUIRED, ParameterInfo, PassInfo
from autoopt.space import INVALID, Categorical, Conditional, NodeSpace, SearchParameter, Sentinel, Value, value_key
from autoopt.spec import DagSpec
from autoopt.spec.nodes import Fixed, OwnDefault, OwnSearch, Searched, Setting
from autoopt.spec.source import Place


def node_space(spec: DagSpec, node: str, info: PassInfo) -> NodeSpace:
    """The space of `node`, whose pass is `info`.

    Raises:
        ConfigError: an unknown parameter, a value it cannot take, a required one that is missing, parameters that
            depend on each other in a cycle; at the line of the mistake.
    """
    settings = _Settings(spec, node, info)
    mistakes = Mistakes()
    for name, setting in spec.passes[node].settings.items():
        with mistakes:
            settings.apply(name, setting)
    mistakes.raise_all()
    settings.complete()
    search, fixed = settings.search, settings.fixed
    _apply_conditions(info, search, fixed)
    space = NodeSpace(search, fixed, info.defaults)
    try:
        space.count  # noqa: B018  computing it finds missing parents and cycles
    except InputError as error:
        raise spec.error(("passes", node, "params"), error.what, error.remedy) from None
    return space


@dataclass(frozen=True)
class NamedFile:
    """A file or folder that a parameter names."""

    parameter: str
    text: str
    """Its path in the spec."""
    path: Path
    digest: str
    """Empty if it does not exist on this machine."""


def named_files(spec: DagSpec, info: PassInfo, space: NodeSpace) -> list[NamedFile]:
    """The files and folders that the parameters of a node may name.

    Raises:
        InputError: One cannot be read.
    """
    files: list[NamedFile] = []
    for parameter in info.parameters:
        if parameter.category not in ("path", "data"):
            continue
        values: tuple[Value, ...] = (space.fixed.get(parameter.name),)
        if parameter.name in space.search:
            values = space.search[parameter.name].all_values()
        for value in values:
            if isinstance(value, str) and value:
                path = Path(spec.data_path(value) if parameter.category == "data" else value)
                files.append(NamedFile(parameter.name, value, path, digest_path(path) if path.exists() else ""))
    return files


@dataclass
class _Settings:
    """Collects the settings of one node as searched and fixed parameters."""

    spec: DagSpec
    node: str
    info: PassInfo
    search: dict[str, SearchParameter] = field(default_factory=dict)
    fixed: dict[str, Value] = field(default_factory=dict)

    def apply(self, name: str, setting: Setting) -> None:
        """Apply one setting of the user."""
        place: Place = ("passes", self.node, "params", name)
        try:
            parameter = self.info.parameter(name)
        except InputError as error:
            raise self.spec.error(place, error.what, error.remedy) from None
        match setting:
            case OwnSearch():
                self._search_own_values(place, parameter)
            case OwnDefault():
                if parameter.default is REQUIRED:
                    raise self.spec.error(place, f"parameter {name!r} has no default", "give a value")
            case Searched(values):
                checked = []
                for index, value in enumerate(values.values()):
                    value_place = (*place, "search", index) if type(values) is Categorical else place
                    checked.append(self._checked(value_place, parameter, value))
                self.search[name] = Categorical(checked) if parameter.category == "path" else values
            case Fixed(value):
                self.fixed[name] = self._checked(place, parameter, value)

    def complete(self) -> None:
        """Add what the user did not set: presets of an alias, and the pass's own search if everything is searched."""
        item = self.spec.passes[self.node]
        for name, value in self.info.presets.items():
            if name not in item.settings:
                self.fixed[name] = value
        already_set = {*item.settings, *self.info.presets}
        searches_all = item.searches_all(self.spec.search.params)
        for parameter in self.info.parameters:
            name = parameter.name
            if searches_all and parameter.search is not None and name not in already_set:
                self.search[name] = parameter.search
            if parameter.default is REQUIRED and name not in self.search and name not in self.fixed:
                reason = f"pass {self.info.name!r} needs parameter {name!r}"
                raise self.spec.error(("passes", self.node), reason, f"give params: {{{name}: ...}}")

    def _search_own_values(self, place: Place, parameter: ParameterInfo) -> None:
        if parameter.search is not None:
            self.search[parameter.name] = parameter.search
        elif not parameter.withdrawn or parameter.default is REQUIRED:
            reason = f"parameter {parameter.name!r} has no search values of its own"
            raise self.spec.error(place, reason, "write {search: [...]}")
        # Otherwise this accelerator can use only the default: nothing to search, and no mistake of the user.

    def _checked(self, place: Place, parameter: ParameterInfo, value: Value) -> Value:
        """`value` if the parameter accepts it; the absolute path of a local file that exists."""
        reason = parameter.check(value)
        if reason is not None:
            raise self.spec.error(place, reason)
        if parameter.category != "path" or not isinstance(value, str) or "://" in value:
            return value
        path = self.spec.path(value)
        self.spec.check_exists(place, value, path)
        return path


def _apply_conditions(info: PassInfo, search: dict[str, SearchParameter], fixed: dict[str, Value]) -> None:
    """Apply the pass's own conditions to the user's values: combinations that it excludes stay excluded."""
    for parameter in info.parameters:
        own, name = parameter.search, parameter.name
        if not isinstance(own, Conditional) or search.get(name) is own:
            continue
        if name in search:
            search[name] = _with_values(own, search[name].values())
        elif name in fixed and any(parent in search for parent in own.parents):
            search[name] = _with_values(own, (fixed.pop(name),))


def _with_values(own: Conditional, values: tuple[Value, ...]) -> Conditional:
    """`own` with the user's values in each branch: all of them if they are numbers, else those that the branch has."""
    numeric = any(isinstance(value, (int, float)) and not isinstance(value, bool) for value in own.all_values())

    if numeric:
        return own.map(lambda branch: Categorical(values))

    def restricted(branch: SearchParameter) -> SearchParameter | Sentinel:
        offered = set(map(value_key, branch.values()))
        allowed = [value for value in values if value_key(value) in offered]
        return Categorical(allowed) if allowed else INVALID

    return own.map(restricted)
