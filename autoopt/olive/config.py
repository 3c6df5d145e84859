"""The sections of an Olive configuration, the same for old versions (with `config:` and `engine:`) and new ones.

Its systems and accelerators become `targets:` and `host:`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Final, TypeAlias

from autoopt.errors import ConfigError
from autoopt.json_codec import JsonValue
from autoopt.spec.source import Place, Source

Section: TypeAlias = Mapping[str, JsonValue]

INPUT_MODEL_DATA: Final = "__input_model_data_config__"
"""The name by which old configurations refer to the data set of the input model."""
_UNITS: Final = {"": 1, "B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30, "TB": 2**40}
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?B?)", re.IGNORECASE)


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
    flows = [list(map(str, items(flow))) for flow in items(root.get("pass_flows"))]
    for name, build in section(root.get("builds")).items():
        pipeline = section(build).get("pipeline")
        if name != "_default" and pipeline:
            flows.append(list(map(str, items(pipeline))))
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


def target_and_host(config: OliveConfig, remarks: Remarks) -> dict[str, JsonValue]:
    """Return `target` or `targets`, and `host` if passes run in another environment than models are measured in."""
    result: dict[str, JsonValue] = {}
    system = config.system("target")
    targets = list(map(dict, _accelerators(config, system)))
    interpreter = _interpreter(system, "target", remarks)
    for target in targets:
        target.update(interpreter)
    if len(targets) == 1:
        result["target"] = targets[0]
    elif targets:
        remarks.add(("target",), f"one target for each of the {len(targets)} execution providers")
        for number, target in enumerate(targets, start=1):
            target["name"] = _target_name(target, number)
        result["targets"] = targets
    host = config.system("host")
    if host and host != system:
        python = _interpreter(host, "host", remarks).get("python")
        if python:
            result["host"] = {"type": "python_env", "python": python}
    return result


def _target_name(target: Section, number: int) -> str:
    provider = str(target.get("execution_provider") or "").removesuffix("ExecutionProvider").lower()
    return provider or str(target.get("device") or f"target{number}")


def _accelerators(config: OliveConfig, system: Section) -> Sequence[dict[str, JsonValue]]:
    targets: list[dict[str, JsonValue]] = []
    for item in items(system.get("accelerators")):
        accelerator = flat(item)
        if isinstance(item, str):
            accelerator = {"device": item}
        providers = items(accelerator.get("execution_providers") or config.root.get("execution_providers"))
        targets += [_target(accelerator, provider) for provider in providers or [None]]
    if not targets:
        targets += [_target({}, provider) for provider in items(config.root.get("execution_providers"))]
    return targets


def _target(accelerator: Section, provider: JsonValue) -> dict[str, JsonValue]:
    target: dict[str, JsonValue] = {}
    device = str(accelerator.get("device") or "").lower()
    if device in ("cpu", "gpu", "npu"):
        target["device"] = device
    if isinstance(provider, Sequence) and not isinstance(provider, str):
        provider = provider[0]  # with the path of its library
    if provider:
        target["execution_provider"] = str(provider)
    memory = _bytes(accelerator.get("memory"))
    if memory:
        target["memory"] = memory
    return target


def _interpreter(system: Section, role: str, remarks: Remarks) -> dict[str, JsonValue]:
    """The other interpreter that a system names; anything but a local one gets a remark."""
    kind = str(system.get("type") or "LocalSystem").lower()
    if kind in ("localsystem", "local"):
        return {}
    if kind == "pythonenvironment":
        folder = system.get("python_environment_path")
        if folder:
            return {"python": str(PurePosixPath(str(folder)) / "python")}
        remarks.add((role,), "no environment is created", "make one with pip and set target.python to its interpreter")
    elif kind == "docker":
        remarks.add((role,), "no container is started", "run autoopt in that image")
    else:
        remarks.add((role,), f"no system {system.get('type')!r}", "run autoopt on the machine that is to measure")
    return {}


def _bytes(value: JsonValue) -> int | None:
    """A size such as `4GB` in bytes; None if it is not one."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = _SIZE.fullmatch(str(value).strip())
    if match is None:
        return None
    unit = match[2].upper()
    return int(float(match[1]) * _UNITS.get(unit, _UNITS.get(f"{unit}B", 1)))
