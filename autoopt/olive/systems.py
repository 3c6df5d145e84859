"""Olive's systems and accelerators as `targets:` and `host:`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Final

from autoopt.json_codec import JsonValue
from autoopt.olive.config import OliveConfig, Remarks, Section, flat, items

_UNITS: Final = {"": 1, "B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30, "TB": 2**40}
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?B?)", re.IGNORECASE)


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
