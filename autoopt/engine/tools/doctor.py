"""Looking at an installation: what is there, what is wrong with it, what to do."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from autoopt.engine.work.environment import cpu
from autoopt.errors import AutooptError, one_line
from autoopt.settings import Settings, without_password
from autoopt.store import open_store
from autoopt.store.files.remote import RemoteArtifacts
from autoopt.workers import call_once

Status = Literal["ok", "warning", "problem"]
LOW_DISK, LEAST_DISK = 5 * 10**9, 10**9
CLOCK_SECONDS = 5.0
FAST_INT8 = ("avx512_vnni", "avx_vnni", "amx_int8", "asimddp")
"""CPU features that make 8-bit arithmetic fast, as the kernel names them."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. `remedy`: what to do, where there is something."""

    check: str
    status: Status
    said: str
    remedy: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def examine(settings: Settings) -> list[Finding]:
    """All findings, in the order of looking; a check that breaks is a finding itself."""
    checks: tuple[Callable[[Settings], Iterator[Finding]], ...] = (
        _versions, _processor, _disk, _database, _artifacts, _runtime, _prefect,
    )  # fmt: skip
    found: list[Finding] = []
    for check in checks:
        name = check.__name__.strip("_")
        try:
            found += check(settings)
        except AutooptError as error:
            found.append(Finding(name, "problem", str(error)))
        except OSError as error:
            found.append(Finding(name, "problem", one_line(str(error))))
    return found


def _versions(settings: Settings) -> Iterator[Finding]:
    yield Finding("python", "ok", f"{platform.python_implementation()} {sys.version.split()[0]}")
    wrong = []
    for line in metadata.requires("autoopt") or []:
        requirement, _, marker = line.partition(";")
        if "extra" in marker:
            continue
        problem = _unmet(requirement)
        if problem:
            wrong.append(problem)
    remedy = "pip install --constraint constraints.txt --editable ."
    if wrong:
        yield Finding("versions", "problem", "; ".join(wrong), remedy)
    else:
        yield Finding("versions", "ok", f"autoopt {metadata.version('autoopt')}, every requirement is met")


def _unmet(requirement: str) -> str:
    from packaging.requirements import Requirement

    wanted = Requirement(requirement)
    try:
        installed = metadata.version(wanted.name)
    except metadata.PackageNotFoundError:
        return f"{wanted.name} is missing"
    return (
        ""
        if wanted.specifier.contains(installed, prereleases=True)
        else f"{requirement.strip()} but {installed} is installed"
    )


def _processor(settings: Settings) -> Iterator[Finding]:
    have = [flag for flag in FAST_INT8 if flag in cpu()["flags"]]
    said = f"{cpu()['model']}, {cpu()['cores']} cores"
    if have:
        yield Finding("cpu", "ok", f"{said}, fast 8-bit arithmetic ({', '.join(have)})")
    else:
        yield Finding(
            "cpu", "warning", f"{said}, no fast 8-bit arithmetic", "int8 models may be slower than float here"
        )
    load = os.getloadavg()[0]
    if load > 0.5 * cpu()["cores"]:
        yield Finding("load", "warning", f"load average {load:.1f}", "latencies are steadier on a quiet machine")


def _disk(settings: Settings) -> Iterator[Finding]:
    place = next(p for p in (settings.home, *settings.home.parents) if p.exists())
    free = shutil.disk_usage(place).free
    status: Status = "problem" if free < LEAST_DISK else "warning" if free < LOW_DISK else "ok"
    remedy = "" if status == "ok" else "'autoopt store gc' frees space; AUTOOPT_HOME moves the store"
    yield Finding("disk", status, f"{free / 1e9:.1f} GB free for {settings.home}", remedy)


def _database(settings: Settings) -> Iterator[Finding]:
    if settings.db_url is None and not (settings.home / "autoopt.db").exists():
        yield Finding("database", "ok", f"none yet in {settings.home}; the first run makes it")
        return
    with open_store(settings.db_url, settings.home) as store:
        yield Finding("database", "ok", f"{without_password(store.safe_url)}: {len(store.runs.all())} runs")
        drift = abs(store.clock() - time.time())
        if drift > CLOCK_SECONDS:
            yield Finding("clock", "problem", f"differs from the database's by {drift:.0f} s", "set the clocks (NTP)")
        else:
            yield Finding("clock", "ok", f"within {drift:.1f} s of the database's")


def _artifacts(settings: Settings) -> Iterator[Finding]:
    """The place that machines share artifacts at: one is written there, read and removed."""
    if settings.artifacts_url is None:
        return
    remote, digest = RemoteArtifacts(settings.artifacts_url), sha256(os.urandom(32)).hexdigest()
    with tempfile.TemporaryDirectory(prefix="autoopt-") as folder:
        (Path(folder) / "probe").write_text(digest)
        began = time.monotonic()
        remote.push(digest, Path(folder))
        found = remote.pull(digest, Path(folder) / "back")
        remote.remove(digest)
        taken = time.monotonic() - began
    if found:
        yield Finding("artifacts", "ok", f"{remote.safe_url}: written, read and removed in {taken:.2f} s")
    else:
        remedy = "AUTOOPT_ARTIFACTS_URL must name a place that all machines see alike"
        yield Finding("artifacts", "problem", f"{remote.safe_url}: what was written there cannot be read", remedy)


def _runtime(settings: Settings) -> Iterator[Finding]:
    called = call_once("autoopt.model.worker:runtime", {})
    if called.value is None:
        remedy = "reinstall onnx and onnxruntime with the constraints file"
        yield Finding("runtime", "problem", f"a worker cannot use it ({called.message})", remedy)
        return
    providers = ", ".join(p.removesuffix("ExecutionProvider") for p in called.value["providers"])
    yield Finding("runtime", "ok", f"onnxruntime {called.value['onnxruntime']} with {providers}")


def _prefect(settings: Settings) -> Iterator[Finding]:
    version = metadata.version("prefect")
    fastapi = tuple(int(n) for n in re.findall(r"\d+", metadata.version("fastapi"))[:2])
    if fastapi >= (0, 151):
        remedy = "pip install 'fastapi<0.151'"
        yield Finding(
            "prefect", "problem", f"Prefect {version} does not start with fastapi {fastapi[0]}.{fastapi[1]}", remedy
        )
        return
    address = os.environ.get("PREFECT_API_URL")
    if not address:
        said = f"Prefect {version}; no PREFECT_API_URL: runs use an ephemeral server"
        yield Finding("prefect", "ok", said, "'prefect server start' and PREFECT_API_URL keep the UI open between runs")
        return
    shown = without_password(address)
    if _answers(address):
        yield Finding("prefect", "ok", f"Prefect {version}; the server at {shown} answers")
    else:
        yield Finding(
            "prefect", "problem", f"the server at {shown} does not answer", "start it with 'prefect server start'"
        )


def _answers(address: str) -> bool:
    import httpx

    try:
        return httpx.get(f"{address.rstrip('/')}/health", timeout=5).is_success
    except (httpx.HTTPError, httpx.InvalidURL):
        return False
