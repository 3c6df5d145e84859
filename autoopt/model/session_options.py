"""Session options as JSON: every key, entry and value that sessions accept.

ONNX Runtime silently accepts unknown configuration keys and optimizer names, so everything is checked here.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Final, TypeAlias

from autoopt.errors import InputError, did_you_mean
from autoopt.json_codec import JsonObject, JsonTypeError, JsonValue, from_json, to_json, without_nulls

OPTIMIZATION_LEVELS: Final[Mapping[str, str]] = {
    "disable": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "layout": "ORT_ENABLE_LAYOUT",
    "all": "ORT_ENABLE_ALL",
}
EXECUTION_MODES: Final[Mapping[str, str]] = {"sequential": "ORT_SEQUENTIAL", "parallel": "ORT_PARALLEL"}

_TABLES: Final = tomllib.loads(Path(__file__).with_name("session_options.toml").read_text(encoding="utf-8"))
Values: TypeAlias = list[str] | str
CONFIG_VALUES: Final[Mapping[str, Values]] = _TABLES["entries"]
"""Configuration entries and their values: a list of texts, or `number`."""
PROVIDER_OPTIONS: Final[Mapping[str, Mapping[str, Values]]] = _TABLES["providers"]
"""Options of each execution provider and their values: a list of texts, `number` or `properties`."""
OPENVINO_PROPERTIES: Final[Mapping[str, Values]] = _TABLES["openvino_properties"]
"""Properties in the option `load_config` of OpenVINO, and their values."""
PRECISION_OPTIONS: Final[Mapping[str, Mapping[str, Mapping[str, str]]]] = _TABLES["precision"]
"""Options or properties for an arithmetic less exact than the default one, by provider and arithmetic."""
SEARCHED_OPTIONS: Final[Mapping[str, list[dict[str, str]]]] = _TABLES["searched"]
"""By provider: the values that a search tries, beside no options."""
THREADS_OPTION: Final[Mapping[str, str]] = _TABLES["threads"]
"""The option with the number of threads of a provider that does not use those of the session."""
OPTIMIZERS: Final = frozenset(_TABLES["optimizers"]["names"].split())
"""Names of onnxruntime's graph optimizers that may be switched off."""

CONFIG_DEFAULTS: Final[Mapping[str, str]] = {
    "session.intra_op.allow_spinning": "1",
    "session.inter_op.allow_spinning": "1",
    "session.dynamic_block_base": "0",
    "session.set_denormal_as_zero": "0",
    "session.disable_prepacking": "0",
    "session.x64quantprecision": "0",
    "optimization.enable_gelu_approximation": "0",
}


@dataclass(frozen=True)
class SessionConfig:
    """Checked session options, typed, with the runtime's defaults. None leaves the choice to the target."""

    execution_mode: str = "sequential"
    graph_optimization_level: str = "all"
    inter_op_num_threads: int = 1
    intra_op_num_threads: int | None = None
    enable_mem_pattern: bool = True
    enable_cpu_mem_arena: bool = True
    config: Mapping[str, str] = field(default_factory=dict)
    disabled_optimizers: list[str] = field(default_factory=list)
    provider_options: Mapping[str, str] = field(default_factory=dict)
    io_binding: bool = False


RUNTIME_DEFAULTS: Final = without_nulls(to_json(SessionConfig()))


def session_config(options: JsonObject, execution_provider: str = "CPUExecutionProvider") -> SessionConfig:
    """Check that every key and value is known; return the options as a typed record.

    Keys: `execution_mode` (sequential, parallel), `graph_optimization_level` (disable, basic, extended, layout, all),
    `inter_op_num_threads` and `intra_op_num_threads` (0: the runtime's choice), `enable_mem_pattern`,
    `enable_cpu_mem_arena`, `config` ({entry: text}), `disabled_optimizers` ([name]), `provider_options` ({name: text}
    of the EP), `io_binding`.

    Raises:
        InputError: an unknown key, entry or value; the message suggests the nearest.
    """
    names = [each.name for each in fields(SessionConfig)]
    for key, value in options.items():
        _check_name("session option", key, names)
        if isinstance(value, int) and value < 0:
            raise InputError(f"session option {key!r} must be at least 0, not {value}")
    try:
        config = from_json(SessionConfig, options)
    except JsonTypeError as error:
        raise InputError(f"session option {error}") from None
    check_entries(config.config)
    _check_name("execution mode", config.execution_mode, EXECUTION_MODES)
    _check_name("optimization level", config.graph_optimization_level, OPTIMIZATION_LEVELS)
    for name in config.disabled_optimizers:
        _check_name("optimizer", name, OPTIMIZERS)
    check_provider_options(execution_provider, config.provider_options)
    return config


def check_entries(entries: Mapping[str, str]) -> None:
    """Check that configuration entries and their values are known: some would write files or read others.

    Raises:
        InputError: an unknown entry or value.
    """
    for key, value in entries.items():
        _check_name("session config entry", key, CONFIG_VALUES)
        _check_value("session config entry", key, value, CONFIG_VALUES[key])


def check_provider_options(execution_provider: str, options: Mapping[str, str]) -> None:
    """Check that an EP's options and their values are known: some would load libraries or read files.

    Raises:
        InputError: an unknown option or value.
    """
    known = PROVIDER_OPTIONS.get(execution_provider, {})
    for name, value in options.items():
        noun = f"option of {execution_provider}"
        _check_name(noun, name, known)
        _check_value(noun, name, value, known[name])


def with_provider_options(options: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """The options of a provider with more of them. Properties of OpenVINO are those of its CPU device."""
    joined = {**options, **{name: value for name, value in more.items() if name not in OPENVINO_PROPERTIES}}
    properties = {name: value for name, value in more.items() if name in OPENVINO_PROPERTIES}
    if properties:
        config = json.loads(joined.get("load_config", "{}"))
        joined["load_config"] = json.dumps({**config, "CPU": {**config.get("CPU", {}), **properties}})
    return joined


def less_exact(execution_provider: str, options: Mapping[str, str]) -> list[str]:
    """The options and properties with which a provider computes less exactly than by default."""
    given = [*options.items()]
    for properties in json.loads(options.get("load_config", "{}")).values():
        given += properties.items()
    changing = [pair for each in PRECISION_OPTIONS.get(execution_provider, {}).values() for pair in each.items()]
    return [name for name, value in given if (name, value) in changing]


def _check_value(noun: str, name: str, value: str, allowed: Values) -> None:
    problem = ""
    if allowed == "properties":
        _check_properties(noun, name, value)
    elif allowed == "number" and not value.isdecimal():
        problem = "a whole number as text"
    elif isinstance(allowed, list) and value not in allowed:
        problem = f"one of {', '.join(map(repr, allowed))}"
    if problem:
        raise InputError(f"{noun} {name!r} must be {problem}, not {value!r}")


def _check_properties(noun: str, name: str, text: str) -> None:
    """Check that a text is JSON with known properties of each device, and not the path of a file."""
    try:
        devices = from_json(dict[str, dict[str, str]], json.loads(text))
    except (ValueError, RecursionError, JsonTypeError):
        raise InputError(f"{noun} {name!r} must be JSON with texts by device and property, not {text!r}") from None
    for properties in devices.values():
        for key, value in properties.items():
            _check_name("property of OpenVINO", key, OPENVINO_PROPERTIES)
            _check_value("property of OpenVINO", key, value, OPENVINO_PROPERTIES[key])


def _check_name(noun: str, name: str, names: Collection[str]) -> None:
    if name not in names:
        remedy = did_you_mean(name, names) or f"known: {', '.join(sorted(names))}"
        raise InputError(f"unknown {noun} {name!r}", remedy=remedy)


def plain_options(options: JsonObject) -> dict[str, JsonValue]:
    """Remove the runtime's defaults and empty parts, so that equal sessions have equal options."""
    plain: dict[str, JsonValue] = {}
    for name, value in sorted(options.items()):
        if name == "config" and isinstance(value, Mapping):
            value = {entry: text for entry, text in value.items() if CONFIG_DEFAULTS.get(entry) != text}
        if value not in ({}, []) and RUNTIME_DEFAULTS.get(name) != value:
            plain[name] = value
    return plain
