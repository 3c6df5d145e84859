"""Look up passes for planning: in the registry, and in a user script through one worker call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias, cast

from autoopt.dag.compiler.requirements import Infos
from autoopt.errors import InputError, did_you_mean
from autoopt.json_codec import JsonObject, JsonValue, to_json
from autoopt.registry import PassInfo, info_from_json, registry
from autoopt.target import Accelerator

Describe: TypeAlias = Callable[[dict[str, JsonValue]], JsonObject]
"""Calls `autoopt.passes.runner:describe` in a worker with its payload; raises InputError if the script fails."""


def pass_infos(accelerator: Accelerator, extra: Mapping[str, PassInfo] | None = None) -> Infos:
    """A look-up from pass name or alias to `PassInfo` for an accelerator; `extra`: passes of a user script, by name."""
    cache = dict(extra or {})

    def info(name: str) -> PassInfo:
        if name not in cache:
            try:
                cache[name] = registry().info(name, accelerator)
            except InputError as error:
                raise InputError(error.what, remedy=did_you_mean(name, cache) or error.remedy) from None
        return cache[name]

    return info


def script_infos(script: str | None, accelerator: Accelerator, describe: Describe) -> dict[str, PassInfo]:
    """The passes that a user script defines, by name; the script runs in a worker only.

    Raises:
        InputError: the script fails, or defines a pass under a name that is taken.
    """
    if script is None:
        return {}
    reply = describe({"user_script": script, "accelerator": to_json(accelerator)})
    infos: dict[str, PassInfo] = {}
    for data in cast("list[JsonObject]", reply["passes"]):
        info = info_from_json(data)
        if info.origin != "built-in":
            infos[info.name] = info
    return infos
