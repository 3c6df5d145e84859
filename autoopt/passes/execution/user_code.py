"""The passes, metrics and objects of the user's script: read only in a worker, only from where the user names it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from autoopt.metrics import Metric
from autoopt.model.files import digest_file
from autoopt.registry import PassInfo, Registry, registry
from autoopt.script import load_script
from autoopt.target import Accelerator


@dataclass(frozen=True)
class UserCode:
    """A user script that was executed: the sha256 of its source, its objects and the passes it registered, by name."""

    path: str = ""
    digest: str = ""
    objects: Mapping[str, Any] = field(default_factory=dict)
    passes: Mapping[str, Any] = field(default_factory=dict)

    def info(self, name: str, accelerator: Accelerator | None = None) -> PassInfo:
        """The `PassInfo` of any pass; the script's digest is on its own passes and on those that take its objects.

        Raises:
            InputError: unknown pass.
        """
        info = registry().info(name, accelerator)
        own = info.name in self.passes or info.user_script
        return replace(info, source_digest=info.source_digest + self.digest) if own else info


_loaded: dict[tuple[str, str], UserCode] = {}


def load(path: str | None) -> UserCode:
    """Execute the script at `path` (nothing where it is None), once for each content. Passes that other scripts
    registered in this process are unknown from then on, until those are loaded again.

    Raises:
        InputError: the file is missing or fails; the text says how, in one line.
    """
    known = registry()
    _forget(known)
    if path is None:
        return UserCode()
    file = Path(path).expanduser().absolute()
    digest = digest_file(file) if file.is_file() else ""
    kept = _loaded.get((str(file), digest))
    if kept is not None:
        for name, item in kept.passes.items():
            known.add(name, item, kept.path)
        return kept
    try:
        objects = vars(load_script(file))
    except BaseException:
        _forget(known)
        raise
    passes = {name: known.loaded[name] for name in _user_names(known)}
    _loaded[str(file), digest] = made = UserCode(str(file), digest, objects, passes)
    return made


def _user_names(known: Registry) -> list[str]:
    return [name for name, origin in known.origins.items() if not origin.startswith("plug-in ")]


def _forget(known: Registry) -> None:
    for name in _user_names(known):
        del known.origins[name]
        known.loaded.pop(name, None)


def metrics_of(script: UserCode) -> list[dict[str, str]]:
    """The metrics that the script defines, as JSON: its functions with `autoopt.register_metric`."""
    own = (getattr(item, "metric", item) for item in script.objects.values())
    found = {item.name: item for item in own if isinstance(item, Metric)}
    return [dict(vars(metric)) for metric in found.values()]
