"""Passes by name: the readable list of built-in ones, entry points, and `@register` in user files.

A `PassInfo` tells everything planning needs (parameters for a target, requires, conflicts) without importing onnx
or onnxruntime: pass modules import those inside `run`.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, TypeVar

from autoopt.errors import InputError, did_you_mean, one_line
from autoopt.registry.built_in import BUILT_IN
from autoopt.registry.compat import answers
from autoopt.registry.describe import describe
from autoopt.registry.pass_info import PassInfo, info_to_json
from autoopt.target import Accelerator

Taken = TypeVar("Taken", bound=Callable[..., Any])


@dataclass(frozen=True)
class Failure:
    """A plug-in or user file that could not be loaded, and why."""

    origin: str
    reason: str


@dataclass
class Registry:
    """Passes by name. `names` and `info` import at most the modules of the passes asked for."""

    dotted: dict[str, str] = field(default_factory=lambda: dict(BUILT_IN))
    loaded: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    releases: dict[str, str] = field(default_factory=dict)  # origin of a plug-in -> its name and version
    _plugins_read: bool = False

    def add(self, name: str, item: Any, origin: str) -> None:
        """Register a class or function.

        Raises:
            InputError: the name is taken, or that is no pass.
        """
        if not callable(getattr(item, "run", None) if inspect.isclass(item) else item):
            raise InputError(f"pass {name!r} ({origin}) is neither a Pass nor a function")
        if (name in self.dotted or name in self.loaded) and self.loaded.get(name) is not item:
            raise InputError(f"pass {name!r} is registered twice ({self.origins.get(name, 'built-in')} and {origin})")
        self.loaded[name] = item
        self.origins[name] = origin

    def names(self) -> tuple[str, ...]:
        """All registered names, without importing built-in passes."""
        self._read_plugins()
        return tuple(dict.fromkeys((*self.dotted, *self.loaded)))

    def get(self, name: str) -> Any:
        """The class or function registered under that name or alias.

        Raises:
            InputError: unknown name (names the nearest).
        """
        if name in self.dotted and name not in self.loaded:
            module, _, attribute = self.dotted[name].partition(":")
            self.loaded[name] = getattr(importlib.import_module(module), attribute)
        if name not in self.loaded:
            self._read_plugins()
        if name not in self.loaded:
            name = self.resolve(name)
            return self.get(name)
        return self.loaded[name]

    def resolve(self, name: str) -> str:
        """The registered name behind a name or an alias.

        Raises:
            InputError: unknown; names the nearest.
        """
        names = self.names()
        if name in names:
            return name
        aliases = {alias: own for own in reversed(names) for alias in getattr(self.get(own), "aliases", ())}
        if name in aliases:
            return aliases[name]
        stands_for = answers().get(name)
        if stands_for is not None and len(stands_for.passes) == 1:
            return str(stands_for.passes[0])
        hint = stands_for.hint if stands_for is not None else did_you_mean(name, [*names, *aliases])
        raise InputError(f"unknown pass {name!r}", remedy=hint or "'autoopt passes list' shows all")

    def info(self, name: str, accelerator: Accelerator | None = None) -> PassInfo:
        """The frozen description of a pass for an accelerator.

        Raises:
            InputError: unknown pass.
        """
        own = self.resolve(name)
        origin = self.origins.get(own, "built-in")
        info = describe(own, self.get(own), accelerator)
        info = replace(info, origin=origin, source_digest=self.releases.get(origin, ""))
        stands_for = None if name == own else answers().get(name)
        return info if stands_for is None else replace(info, presets=stands_for.presets)

    def _read_plugins(self) -> None:
        if self._plugins_read:
            return
        self._plugins_read = True
        for point in importlib.metadata.entry_points(group="autoopt.passes"):
            origin = f"plug-in {point.dist.name}" if point.dist else f"plug-in {point.value}"
            self.releases[origin] = f"{point.dist.name} {point.dist.version}" if point.dist else ""
            before = set(self.loaded)
            try:
                item = point.load()
                json.dumps(info_to_json(describe(point.name, item)))  # what cannot be told of is no pass
                self.add(point.name, item, origin)
            except (Exception, SystemExit) as error:  # another party's code: it is reported, and harms nothing else
                self.failures.append(Failure(f"{origin} ({point.value})", one_line(f"{type(error).__name__}: {error}")))
            own = self.loaded.keys() - self.dotted.keys() - before
            self.origins.update(dict.fromkeys(own, origin))  # with what its module registered beside


@lru_cache(maxsize=1)
def registry() -> Registry:
    """The registry of this process."""
    return Registry()


def register(name: str) -> Callable[[Taken], Taken]:
    """Make a `Pass` subclass or a function `(model, **parameters) -> model` known under `name`."""

    def decorate(item: Taken) -> Taken:
        registry().add(name, item, inspect.getsourcefile(inspect.unwrap(item)) or "user code")
        return item

    return decorate
