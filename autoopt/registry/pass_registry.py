"""Passes by name: built-in ones, plug-ins from entry points, and `@register` in user files."""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Final, TypeVar

from autoopt.errors import InputError, did_you_mean, one_line
from autoopt.json_codec import JsonObject
from autoopt.registry.compat import answers
from autoopt.registry.describe import PassCode, describe
from autoopt.registry.pass_info import PassInfo, info_to_json
from autoopt.target import Accelerator

Code = TypeVar("Code", bound=Callable[..., object])

# A new pass adds one line to the file; nothing else needs an edit.
_LINES = Path(__file__).with_name("built_in.txt").read_text(encoding="utf-8").splitlines()
_ROWS = [line.split(maxsplit=2) for line in _LINES if line and not line.startswith("#")]
BUILT_IN: Final[Mapping[str, str]] = {name: f"autoopt.passes.{rest[0]}" for name, *rest in _ROWS if len(rest) == 1}
"""Name -> `module:attribute` of the class or function."""
PRESETS: Final[Mapping[str, tuple[str, JsonObject]]] = {
    name: (rest[0], json.loads(rest[1])) for name, *rest in _ROWS if len(rest) == 2
}
"""Name of a pass with parameters -> the pass, and the parameters."""


@dataclass(frozen=True)
class Failure:
    """A plug-in or user file that could not be loaded, and the reason."""

    origin: str
    reason: str


@dataclass
class Registry:
    """Passes by name. A look-up imports only the module of the pass in question."""

    dotted: dict[str, str] = field(default_factory=lambda: dict(BUILT_IN))
    loaded: dict[str, PassCode] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    releases: dict[str, str] = field(default_factory=dict)
    """Origin of a plug-in -> its name and version."""
    _plugins_loaded: bool = False

    def add(self, name: str, code: PassCode, origin: str) -> None:
        """Register a class or function.

        Raises:
            InputError: the name is taken, or the object is not a pass.
        """
        function: object = code
        if inspect.isclass(code):
            function = getattr(code, "run", None)
        if not callable(function):
            raise InputError(f"pass {name!r} ({origin}) is neither a Pass nor a function")
        if (name in self.dotted or name in self.loaded) and self.loaded.get(name) is not code:
            raise InputError(f"pass {name!r} is registered twice ({self.origins.get(name, 'built-in')} and {origin})")
        self.loaded[name] = code
        self.origins[name] = origin

    def names(self) -> tuple[str, ...]:
        """All registered names, without importing built-in passes."""
        self._load_plugins()
        return tuple(dict.fromkeys((*self.dotted, *self.loaded)))

    def get(self, name: str) -> PassCode:
        """The class or function registered under that name or alias.

        Raises:
            InputError: unknown name; suggests the nearest.
        """
        if name not in self.loaded and name not in self.dotted:
            name = self.resolve(name)
        if name not in self.loaded:
            module, _, attribute = self.dotted[name].partition(":")
            self.loaded[name] = getattr(importlib.import_module(module), attribute)
        return self.loaded[name]

    def resolve(self, name: str) -> str:
        """The registered name for a name, an alias, or the name of a pass in another product.

        Raises:
            InputError: unknown name; suggests the nearest.
        """
        names = self.names()
        if name in names:
            return name
        if name in PRESETS:
            return PRESETS[name][0]
        # Aliases are attributes of the classes, so only an unknown name costs the import of all pass modules.
        aliases: dict[str, str] = {}
        for registered in names:
            for alias in getattr(self.get(registered), "aliases", ()):
                aliases.setdefault(alias, registered)
        if name in aliases:
            return aliases[name]
        hint = did_you_mean(name, [*names, *PRESETS, *aliases, *answers()]) or "'autoopt passes list' shows all"
        if name in answers():
            answer = answers()[name]
            if len(answer.passes) == 1:
                return answer.passes[0]
            hint = answer.hint
        raise InputError(f"unknown pass {name!r}", remedy=hint)

    def info(self, name: str, accelerator: Accelerator | None = None) -> PassInfo:
        """The frozen description of a pass for an accelerator.

        Raises:
            InputError: unknown pass.
        """
        registered = self.resolve(name)
        origin = self.origins.get(registered, "built-in")
        info = describe(registered, self.get(registered), accelerator)
        own = (*self.names(), *PRESETS, *info.aliases)
        others = [name for name, answer in answers().items() if answer.passes == (registered,) and name not in own]
        aliases = (*info.aliases, *others)
        info = replace(info, origin=origin, source_digest=self.releases.get(origin, ""), aliases=aliases)
        if name in PRESETS:
            return replace(info, presets=PRESETS[name][1])
        if name != registered and name in answers():
            return replace(info, presets=answers()[name].presets)
        return info

    def _load_plugins(self) -> None:
        if self._plugins_loaded:
            return
        self._plugins_loaded = True
        for point in importlib.metadata.entry_points(group="autoopt.passes"):
            origin = f"plug-in {point.value}"
            if point.dist is not None:
                origin = f"plug-in {point.dist.name}"
                self.releases[origin] = f"{point.dist.name} {point.dist.version}"
            before = set(self.loaded)
            try:
                code = point.load()
                # A pass that cannot be described as JSON is of no use to planning.
                json.dumps(info_to_json(describe(point.name, code)))
                self.add(point.name, code, origin)
            except (Exception, SystemExit) as error:  # a plug-in must not break the others
                self.failures.append(Failure(f"{origin} ({point.value})", one_line(f"{type(error).__name__}: {error}")))
            # The module may have registered further passes itself.
            added = self.loaded.keys() - self.dotted.keys() - before
            self.origins.update(dict.fromkeys(added, origin))


@lru_cache(maxsize=1)
def registry() -> Registry:
    """The registry of this process."""
    return Registry()


def register(name: str) -> Callable[[Code], Code]:
    """Register a `Pass` subclass or a function `(model, **parameters) -> model` under `name`."""

    def decorate(code: Code) -> Code:
        registry().add(name, code, inspect.getsourcefile(inspect.unwrap(code)) or "user code")
        return code

    return decorate
