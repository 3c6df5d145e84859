"""Content keys: what a pass run, an evaluation and a run are, so that the same work is never done twice.

A key is the sha256 of canonical JSON of everything the result depends on, and of nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autoopt.engine.work.environment import cpu, library_version, versions
from autoopt.measure.meters import Meter
from autoopt.model.candidate import Candidate, digest_json
from autoopt.registry import PassInfo
from autoopt.target import Accelerator, Target

SCHEMA = 1
"""Raised whenever the meaning of a key changes."""


def pass_run_key(
    info: PassInfo,
    params: Mapping[str, Any],
    candidate: Candidate,
    *,
    accelerator: Accelerator,
    calibration: str = "",
    files: Mapping[str, str] | None = None,
    runtime: Mapping[str, Any] | None = None,
) -> str:
    """Key of one pass run: pass and library versions, full config, digests of the data, files and script it uses,
    input candidate, target facts, and the host's CPU only where the pass declares that it matters. `runtime`: versions
    of the host's interpreter and runtime, where it is not this one."""
    return digest_json(
        {
            "schema": SCHEMA,
            "pass": info.name,
            "version": info.version,
            "libraries": {name: library_version(name) for name in info.libraries},
            "params": {name: value for name, value in params.items() if name not in (files or {})},
            "source": info.source_digest,
            "calibration": calibration if info.needs_data else "",
            "files": dict(files or {}),
            "input": candidate.key,
            "target": [accelerator.device, accelerator.execution_provider],
            "cpu": [cpu()["model"], cpu()["flags"]] if info.host_bound else "",
            **({"runtime": dict(runtime)} if runtime else {}),
        }
    )


def evaluation_key(
    meter: Meter,
    metrics: tuple[str, ...],
    candidate: Candidate,
    source: Candidate | None,
    *,
    target: Target,
    data: str,
    settings: Mapping[str, Any],
    script: str = "",
    runtime: tuple[str, ...] | None = None,
) -> str:
    """Key of one evaluation: candidate, metrics, data, target, CPU, runtime, threads, and what it is compared to."""
    return digest_json(
        {
            "schema": SCHEMA,
            "meter": [meter.name, meter.version],
            "metrics": list(metrics),
            "candidate": candidate.key,
            "source": source.key if source else "",
            "data": data,
            "target": target.content,
            "cpu": [cpu()["model"], cpu()["cores"]] if meter.exclusive else "",
            "runtime": list(runtime or (library_version("onnxruntime"), library_version("numpy"))),
            "settings": dict(settings),
            "script": script,
        }
    )


def run_identity(parts: Mapping[str, Any]) -> str:
    """Key of a whole run: plan, model, data, objectives, search, target, CPU and all library versions."""
    return digest_json(
        {"schema": SCHEMA, "cpu": [cpu()["model"], cpu()["cores"]], "versions": dict(versions()), **parts}
    )
