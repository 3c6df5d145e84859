"""The sections of an Olive configuration, the same for old versions (with `config:` and `engine:`) and new ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias, cast

from autoopt.errors import ConfigError
from autoopt.json_codec import JsonValue
from autoopt.spec.source import Place, Source

Section: TypeAlias = Mapping[str, JsonValue]

INPUT_MODEL_DATA: Final = "__input_model_data_config__"
"""The name by which old configurations refer to the data set of the input model."""


@dataclass(frozen=True)
class OlivePass:
    """One pass; several of one slot are alternatives."""

    type: str
    params: Section
    place: Place


@dataclass(frozen=True)
class OliveConfig:
    """A configuration; sections that it lacks are empty."""

    root: Section
    slots: Mapping[str, Sequence[OlivePass]]
    flows: Sequence[Sequence[str]]
    """Chains of slots; empty if all slots form one chain."""
    data: Mapping[str, Section]
    evaluators: Mapping[str, Section]
    systems: Mapping[str, Section]
    search: Section | None
    """The search strategy; None if nothing is searched."""

    @staticmethod
    def read(document: JsonValue) -> OliveConfig:
        """Read the parts that autoopt can use of a configuration."""
        root = section(document)
        root = {**section(root.get("engine")), **root}
        model = flat(root.get("input_model"))
        data = named(root.get("data_configs"))
        old_data = section(section(model.get("hf_config")).get("dataset"))
        if old_data:
            data[INPUT_MODEL_DATA] = old_data
        return OliveConfig(
            root={**root, "input_model": model},
            slots={name: _slot(name, value) for name, value in section(root.get("passes")).items()},
            flows=_flows(root),
            data=data,
            evaluators=named(root.get("evaluators")),
            systems=named(root.get("systems")),
            search=_search(root.get("search_strategy")),
        )

    def system(self, name: str) -> Section:
        """The system that `host` or `target` names or contains; empty if there is none."""
        value = self.root.get(name)
        if isinstance(value, str):
            return self.systems.get(value, {})
        return flat(value)

    def evaluator(self) -> tuple[Place, Section]:
        """The evaluator of the run: the one that is named, else the only one; empty if there is none."""
        value = self.root.get("evaluator")
        names = [*self.evaluators] if value is None else [value]
        if len(names) == 1 and isinstance(names[0], str):
            return ("evaluators", names[0]), self.evaluators.get(names[0], {})
        return ("evaluator",), flat(value)


def section(value: JsonValue) -> Section:
    """A mapping as it is; anything else is an empty section."""
    if isinstance(value, Mapping):
        return value
    return {}


def items(value: JsonValue) -> Sequence[JsonValue]:
    """A list as it is; anything else is a list of one item, and null an empty one."""
    if value is None:
        return []
    if isinstance(value, Sequence) and not isinstance(value, str):
        return value
    return [value]


def flat(value: JsonValue) -> Section:
    """A section with the fields of its `config`, where old versions put them."""
    fields = dict(section(value))
    return {**section(fields.pop("config", None)), **fields}


def named(value: JsonValue) -> dict[str, Section]:
    """Sections by name; new versions write them as a list with `name`."""
    if isinstance(value, Mapping):
        return {name: flat(content) for name, content in value.items()}
    sections = list(map(flat, items(value)))
    return {str(content.get("name")): content for content in sections}


def _slot(name: str, value: JsonValue) -> list[OlivePass]:
    passes = []
    for index, item in enumerate(items(value)):
        fields = dict(flat(item))
        place: Place = ("passes", name)
        if isinstance(value, Sequence):
            place = (*place, index)
        passes.append(OlivePass(str(fields.pop("type", name)), fields, place))
    return passes


def _flows(root: Section) -> list[list[str]]:
    flows = [cast("list[str]", list(items(flow))) for flow in items(root.get("pass_flows"))]
    for name, build in section(root.get("builds")).items():
        pipeline = section(build).get("pipeline")
        if name != "_default" and pipeline:
            flows.append(cast("list[str]", list(items(pipeline))))
    return flows


def _search(value: JsonValue) -> Section | None:
    if not value and value != {}:
        return None
    strategy = dict(section(value))
    for name in ("search_algorithm_config", "sampler_config"):
        strategy.update(section(strategy.pop(name, None)))
    return strategy


@dataclass
class Remarks:
    """Collects remarks, each one line, with the line of the field that it is about."""

    source: Source
    _errors: dict[str, ConfigError] = field(default_factory=dict)

    def add(self, place: Place, what: str, remedy: str = "") -> None:
        """Add a remark on a field, unless there is the same one already."""
        remark = self.source.error(place, what, remedy)
        self._errors.setdefault(str(remark), remark)

    def texts(self) -> tuple[str, ...]:
        """All remarks in the order of their lines."""
        return tuple(map(str, self._in_order()))

    def refusal(self, place: Place, what: str, remedy: str) -> ConfigError:
        """The error that ends a conversion, followed by all remarks so far."""
        error = self.source.error(place, what, remedy)
        error.others = tuple(self._in_order())
        return error

    def _in_order(self) -> list[ConfigError]:
        return sorted(self._errors.values(), key=lambda remark: remark.line)
