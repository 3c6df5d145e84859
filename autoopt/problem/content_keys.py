"""Content keys: what a pass run, an evaluation and a run are, so that the same work is never done twice.

A key is the sha256 of canonical JSON of everything the result depends on, and of nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from autoopt.distributions import library_version
from autoopt.measure.meters import Meter
from autoopt.model.candidate import Candidate, digest_json
from autoopt.problem.environment import cpu, versions
from autoopt.registry import PassInfo
from autoopt.target import Accelerator, Target

SCHEMA = 1
"""Raised whenever the meaning of a key changes."""


@dataclass(frozen=True)
class Implementation:
    """The code of a pass: two runs of a pass with the same implementation do the same."""

    version: int
    libraries: Mapping[str, str] = field(default_factory=dict)
    """Versions of the distributions that the pass calls."""
    source: str = ""
    """sha256 of the user script; name and version of a plug-in; empty for built-in passes."""

    @staticmethod
    def of(info: PassInfo) -> Implementation:
        """The installed implementation of a pass."""
        return Implementation(
            info.version, {name: library_version(name) for name in info.libraries}, info.source_digest
        )

    def changes(self, now: Implementation) -> str:
        """List what differs in `now`, as `version 1, now 2; onnx 1.22.0, now 1.23.2`; empty if nothing does."""
        before, after = self._versions(), now._versions()
        changes = []
        for name in {**before, **after}:
            old, new = before.get(name), after.get(name)
            if old != new:
                changes.append(f"{name} {old or 'none'}, now {new or 'none'}")
        return "; ".join(changes)

    def _versions(self) -> dict[str, str]:
        return {"version": str(self.version), **self.libraries, "source": self.source}


@dataclass(frozen=True)
class PassRunInput:
    """Everything that a pass run depends on besides the pass and its configuration."""

    candidate: Candidate
    accelerator: Accelerator
    calibration: str = ""
    """Digest of the calibration data."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Digests of the files that the configuration names, by parameter."""
    runtime: Mapping[str, object] = field(default_factory=dict)
    """Versions of the host's interpreter and runtime; empty for this interpreter."""
    roles: Mapping[str, str] = field(default_factory=dict)
    """Kinds of inputs that the user gives."""


def pass_run_key(info: PassInfo, config: Mapping[str, object], work: PassRunInput) -> str:
    """Compute the key of one pass run.

    It covers the versions of the pass and its libraries, the full configuration, the digests of data, files and
    scripts, the input candidate and the target; the CPU only if the pass declares that its result depends on it.
    """
    implementation = Implementation.of(info)
    content: dict[str, object] = {
        "schema": SCHEMA,
        "pass": info.name,
        "version": implementation.version,
        "libraries": implementation.libraries,
        "params": {name: value for name, value in config.items() if name not in work.files},
        "source": implementation.source,
        "calibration": work.calibration if info.needs_data else "",
        "files": dict(work.files),
        "input": work.candidate.key,
        "target": [work.accelerator.device, work.accelerator.execution_provider],
        "cpu": [cpu()["model"], cpu()["flags"]] if info.host_bound else "",
    }
    # Results of this interpreter keep the keys that they had before there were other hosts.
    if work.runtime:
        content["runtime"] = dict(work.runtime)
    if work.roles:
        content["roles"] = dict(work.roles)
    return digest_json(content)


@dataclass(frozen=True)
class EvaluationInput:
    """Everything that an evaluation depends on besides its meter."""

    metrics: tuple[str, ...]
    candidate: Candidate
    source: Candidate
    """The model it is compared with."""
    target: Target
    data: str
    """Digest of the data."""
    settings: Mapping[str, object]
    script: str = ""
    """Digest of the user script."""
    runtime: tuple[str, ...] | None = None
    """Versions of onnxruntime and numpy; None for this interpreter."""


def evaluation_key(meter: Meter, work: EvaluationInput) -> str:
    """Compute the key of one evaluation. It covers the CPU if the meter needs the machine for itself."""
    runtime = work.runtime or (library_version("onnxruntime"), library_version("numpy"))
    content: dict[str, object] = {
        "schema": SCHEMA,
        "meter": [meter.name, meter.version],
        "metrics": list(work.metrics),
        "candidate": work.candidate.key,
        "source": work.source.key,
        "data": work.data,
        "target": work.target.content,
        "cpu": [cpu()["model"], cpu()["cores"]] if meter.exclusive else "",
        "runtime": list(runtime),
        "settings": dict(work.settings),
        "script": work.script,
    }
    return digest_json(content)


def run_identity(parts: Mapping[str, object]) -> str:
    """Compute the key of a whole run: `parts` as well as the CPU and the versions of all libraries."""
    machine = [cpu()["model"], cpu()["cores"]]
    return digest_json({"schema": SCHEMA, "cpu": machine, "versions": dict(versions()), **parts})
