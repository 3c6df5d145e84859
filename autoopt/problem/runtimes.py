"""The runtimes of this machine, and the targets that they make for `--ep all`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from autoopt.spec.proposal_options import ProposalOptions
from autoopt.spec.targets import TargetSpec
from autoopt.target import DEFAULT_EP


@dataclass(frozen=True)
class InstalledRuntime:
    """The onnxruntime of an interpreter, as its worker describes it."""

    interpreter: str
    """Its path; empty for this one."""
    distribution: str
    onnxruntime: str
    """Its version."""
    providers: tuple[str, ...]
    unusable: Mapping[str, str]
    """Providers that cannot be used here, and plug-ins that do not load, with the reason."""
    plugins: Mapping[str, str] = field(default_factory=dict)
    """The plug-in that has a provider, as a requirement."""
    devices: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The devices of a provider, where onnxruntime tells."""

    @property
    def name(self) -> str:
        """The distribution and its version, such as `onnxruntime 1.31.1`, and the interpreter if it is another one."""
        return f"{self.distribution} {self.onnxruntime}" + (f" of {self.interpreter}" if self.interpreter else "")

    @property
    def words(self) -> str:
        """The name and the providers: `onnxruntime 1.31.1 with CPU; not Azure: it runs models in a cloud`."""
        usable = [self._described(name) for name in self.providers if name not in self.unusable]
        reasons = [f"not {_short(name)}: {reason}" for name, reason in self.unusable.items()]
        return "; ".join([f"{self.name} with {', '.join(usable) or 'no provider'}", *reasons])

    def _described(self, provider: str) -> str:
        """The short name of a provider, its devices and plug-in: `OpenVINO (CPU, onnxruntime-ep-openvino 1.8.1)`."""
        facts = list(self.devices.get(provider, ())) if provider != DEFAULT_EP["cpu"] else []
        if provider in self.plugins:
            facts.append(self.plugins[provider].replace("==", " "))
        return f"{_short(provider)} ({', '.join(facts)})" if facts else _short(provider)


def machine_targets(options: ProposalOptions, runtimes: Sequence[InstalledRuntime]) -> tuple[TargetSpec, ...]:
    """A target for each usable provider; the first is the default one of the first runtime, which users have now.

    The default provider of another runtime counts if its version differs.
    """
    default, first = DEFAULT_EP["cpu"], runtimes[0]
    targets: dict[str, TargetSpec] = {}
    for runtime in runtimes:
        for provider in sorted(runtime.providers, key=lambda name: name != default):
            name = _short(provider).lower()
            is_known = name in targets and runtime.onnxruntime == first.onnxruntime
            if provider in runtime.unusable or (provider == default and is_known):
                continue
            while name in targets:
                name += f"-{runtime.onnxruntime}"
            targets[name] = options.of_provider(provider, runtime.interpreter, name).target()
    return tuple(targets.values())


def _short(provider: str) -> str:
    return provider.removesuffix("ExecutionProvider")
