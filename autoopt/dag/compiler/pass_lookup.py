"""Where planning learns of passes: the registry, and a user script's passes through one worker call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from autoopt.dag.compiler.requirements import Infos
from autoopt.errors import InputError, did_you_mean
from autoopt.json_codec import to_json
from autoopt.registry import PassInfo, info_from_json, registry
from autoopt.target import Accelerator

Describe: TypeAlias = Callable[[dict[str, Any]], Mapping[str, Any]]
"""Calls `autoopt.passes.runner:describe` in a worker with its payload; raises InputError where the script fails."""


def pass_infos(accelerator: Accelerator, extra: Mapping[str, PassInfo] | None = None) -> Infos:
    """Pass name or alias -> `PassInfo` for an accelerator; `extra`: passes of a user script, by name."""
    known = dict(extra or {})

    def info(name: str) -> PassInfo:
        if name in known:
            return known[name]
        try:
            known[name] = registry().info(name, accelerator)
        except InputError as error:
            hint = did_you_mean(name, known)
            raise InputError(error.what, remedy=hint or error.remedy) from None
        return known[name]

    return info


def script_infos(script: str | None, accelerator: Accelerator, describe: Describe) -> dict[str, PassInfo]:
    """The passes that a user script defines, by name; the script runs in a worker only.

    Raises:
        InputError: the script cannot be run, or defines a pass under a taken name.
    """
    if script is None:
        return {}
    payload = {"user_script": script, "accelerator": to_json(accelerator)}
    infos = [info_from_json(data) for data in describe(payload)["passes"]]
    return {i.name: i for i in infos if i.origin != "built-in"}
