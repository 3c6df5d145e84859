"""The user's script: its passes, metrics and objects. Loaded only in workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from autoopt.metrics import Metric
from autoopt.model.candidate import digest_json
from autoopt.model.files import digest_file
from autoopt.registry import PassInfo, Registry, registry
from autoopt.registry.describe import PassCode
from autoopt.script import imported_files, load_script
from autoopt.target import Accelerator


@dataclass(frozen=True)
class UserCode:
    """A user script that was executed."""

    path: str = ""
    digest: str = ""
    """sha256 of the source, and of the modules of the user that it imports, if any."""
    imports: Mapping[str, str] = field(default_factory=dict)
    """sha256 of the files of these modules, by path."""
    objects: Mapping[str, object] = field(default_factory=dict)
    """Its module-level names."""
    passes: Mapping[str, PassCode] = field(default_factory=dict)
    """Classes and functions that it registered, by name of the pass."""

    def info(self, name: str, accelerator: Accelerator | None = None) -> PassInfo:
        """Describe any pass. The script's digest marks its own passes and those with parameters from the script.

        Raises:
            InputError: unknown pass.
        """
        info = registry().info(name, accelerator)
        if info.name in self.passes or info.user_script:
            return replace(info, source_digest=info.source_digest + self.digest)
        return info


_cache: dict[tuple[str, str], UserCode] = {}
"""Scripts executed in this process, by path and digest: executing one twice would register its passes twice."""


def load(path: str | None) -> UserCode:
    """Execute the script at `path`, once for each content; None stands for no script.

    Passes of scripts loaded earlier in this process become unknown until their script is loaded again.

    Raises:
        InputError: the file is missing or fails; the text explains it in one line.
    """
    passes = registry()
    _unregister_user_passes(passes)
    if path is None:
        return UserCode()
    file = Path(path).expanduser().absolute()
    digest = digest_file(file) if file.is_file() else ""
    cached = _cache.get((str(file), digest))
    if cached is not None:
        for name, item in cached.passes.items():
            passes.add(name, item, cached.path)
        return cached
    try:
        # Again: the data may have executed it, and its passes are no longer registered.
        objects = vars(load_script(file, again=True))
    except BaseException:
        _unregister_user_passes(passes)
        raise
    registered = {name: passes.loaded[name] for name in _user_pass_names(passes)}
    imports = {str(imported): digest_file(imported) for imported in imported_files(file)}
    content = digest_json([digest, *imports.values()]) if imports else digest
    script = UserCode(str(file), content, imports, objects, registered)
    _cache[str(file), digest] = script
    return script


def _user_pass_names(passes: Registry) -> list[str]:
    return [name for name, origin in passes.origins.items() if not origin.startswith("plug-in ")]


def _unregister_user_passes(passes: Registry) -> None:
    for name in _user_pass_names(passes):
        del passes.origins[name]
        passes.loaded.pop(name, None)


def metrics_of(script: UserCode) -> tuple[Metric, ...]:
    """List the metrics that the script defines with `register_metric`, without duplicates."""
    metrics: dict[str, Metric] = {}
    for item in script.objects.values():
        metric = getattr(item, "metric", item)  # `register_metric` leaves it on the function
        if isinstance(metric, Metric):
            metrics[metric.name] = metric
    return tuple(metrics.values())
