"""Examine an installation: versions, CPU, disk, database, shared artifacts, runtime and Prefect."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib import metadata
from importlib.util import find_spec
from typing import Final, Literal

from autoopt.distributions import installed_distribution
from autoopt.errors import AutooptError, one_line
from autoopt.measure.latency.busy import can_go_first
from autoopt.problem.environment import cpu
from autoopt.problem.probe import Probe
from autoopt.report.words.formatting import plural
from autoopt.settings import Settings, without_password
from autoopt.store import open_store, store_exists
from autoopt.store.remote import RemoteArtifacts
from autoopt.working_folder import working_folder

Status = Literal["ok", "warning", "problem"]
LOW_DISK, MINIMUM_DISK = 5 * 10**9, 10**9
"""Bytes of free disk space below which there is a warning, and a problem."""
CLOCK_SECONDS = 5.0
"""Difference to the database's clock that breaks leases."""
FAST_INT8: Final = ("avx512_vnni", "avx_vnni", "amx_int8", "asimddp")
"""CPU features that make 8-bit arithmetic fast, as the kernel names them."""
BROKEN_FASTAPI: Final = (0, 151)
"""The first version of fastapi that Prefect does not start with."""


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    check: str
    status: Status
    message: str
    remedy: str = ""

    def to_json(self) -> dict[str, str]:
        return {"check": self.check, "status": self.status, "said": self.message, "remedy": self.remedy}


def examine(settings: Settings, runtimes: Sequence[str] = ()) -> list[Finding]:
    """Run all checks, in order; a check that fails to run is a problem itself.

    `runtimes` are further interpreters whose runtimes are checked.
    """
    checks: dict[str, Callable[[Settings], Iterator[Finding]]] = {
        "versions": _versions,
        "processor": _processor,
        "disk": _disk,
        "database": _database,
        "artifacts": _artifacts,
        "runtime": lambda _: _runtimes(("", *runtimes)),
        "prefect": _prefect,
    }
    findings: list[Finding] = []
    for name, check in checks.items():
        try:
            findings += check(settings)
        except (AutooptError, OSError) as error:
            findings.append(Finding(name, "problem", one_line(str(error))))
    return findings


def _versions(settings: Settings) -> Iterator[Finding]:
    yield Finding("python", "ok", f"{platform.python_implementation()} {sys.version.split()[0]}")
    problems: list[str] = []
    with_prefect = find_spec("prefect") is not None
    for line in metadata.requires("autoopt") or ():
        requirement, _, condition = line.partition(";")
        if "extra" not in condition or (with_prefect and 'extra == "prefect"' in condition):
            problems.append(_unmet(requirement))
    unmet = "; ".join(filter(None, problems))
    if unmet:
        runtime, remedy = installed_distribution("onnxruntime"), "pip install --constraint constraints.txt --editable ."
        if runtime is not None and runtime.name in unmet and runtime.name != "onnxruntime":  # two would mix their files
            remedy = "install autoopt in another environment, and name this one's Python with --runtime"
        yield Finding("versions", "problem", unmet, remedy)
    else:
        yield Finding("versions", "ok", f"autoopt {metadata.version('autoopt')}, all requirements are met")


def _unmet(line: str) -> str:
    """The reason why a requirement is not met; empty if it is."""
    from packaging.requirements import Requirement

    requirement = Requirement(line)
    installed = installed_distribution(requirement.name)
    if installed is None:
        return f"{requirement.name} is missing"
    if requirement.specifier.contains(installed.version, prereleases=True):
        return ""
    return f"{line.strip()} is required, {installed.name} {installed.version} is installed"


def _processor(settings: Settings) -> Iterator[Finding]:
    fast = [flag for flag in FAST_INT8 if flag in cpu()["flags"]]
    text = f"{cpu()['model']}, {cpu()['cores']} cores"
    if fast:
        yield Finding("cpu", "ok", f"{text}, fast 8-bit arithmetic ({', '.join(fast)})")
    else:
        remedy = "int8 models may be slower than float models on this machine"
        yield Finding("cpu", "warning", f"{text}, no fast 8-bit arithmetic", remedy)
    load = os.getloadavg()[0]
    if load > 0.5 * cpu()["cores"]:
        remedy = "a quiet machine gives more precise latencies"
        if not can_go_first():
            remedy += "; so does real-time priority (CAP_SYS_NICE or 'ulimit -r') for models on several threads"
        yield Finding("load", "warning", f"load average {load:.1f}", remedy)


def _disk(settings: Settings) -> Iterator[Finding]:
    # Before the first run, the folder of the store does not exist.
    place = next(path for path in (settings.home, *settings.home.parents) if path.exists())
    free = shutil.disk_usage(place).free
    text = f"{free / 1e9:.1f} GB free for {settings.home}"
    if free >= LOW_DISK:
        yield Finding("disk", "ok", text)
        return
    remedy = "'autoopt store gc' frees space; AUTOOPT_HOME moves the store"
    yield Finding("disk", "problem" if free < MINIMUM_DISK else "warning", text, remedy)


def _database(settings: Settings) -> Iterator[Finding]:
    if not store_exists(settings.db_url, settings.home):
        yield Finding("database", "ok", f"none yet in {settings.home}; the first run creates it")
        return
    with open_store(settings.db_url, settings.home) as store:
        runs = plural(len(store.runs.all()), "run")
        yield Finding("database", "ok", f"{without_password(store.safe_url)}: {runs}")
        difference = abs(store.clock() - time.time())
        if difference <= CLOCK_SECONDS:
            yield Finding("clock", "ok", f"within {difference:.1f} s of the database's")
        else:
            text = f"differs from the database's by {difference:.0f} s"
            yield Finding("clock", "problem", text, "synchronize the clocks (NTP)")


def _artifacts(settings: Settings) -> Iterator[Finding]:
    """Write, read and remove an artifact in the place that machines share."""
    if settings.artifacts_url is None:
        return
    remote, digest = RemoteArtifacts(settings.artifacts_url), sha256(os.urandom(32)).hexdigest()
    with working_folder() as folder:
        (folder / "probe").write_text(digest)
        began = time.monotonic()
        remote.push(digest, folder)
        pulled = remote.pull(digest, folder / "back")
        remote.remove(digest)
        seconds = time.monotonic() - began
    if pulled:
        yield Finding("artifacts", "ok", f"{remote.safe_url}: wrote, read and removed a file in {seconds:.2f} s")
    else:
        remedy = "AUTOOPT_ARTIFACTS_URL must name a place that all machines share"
        yield Finding("artifacts", "problem", f"{remote.safe_url}: a file written there cannot be read back", remedy)


def _runtimes(pythons: Sequence[str]) -> Iterator[Finding]:
    """Check the runtimes of these interpreters; an empty text is this one."""
    with Probe() as probe:
        for python in pythons:
            try:
                yield Finding("runtime", "ok", probe.installed_runtime(python).words)
            except AutooptError as error:
                what = f"{error.where}: {error.what}" if error.where else error.what
                yield Finding("runtime", "problem", what, error.remedy)


def _prefect(settings: Settings) -> Iterator[Finding]:
    if find_spec("prefect") is None:
        text = "not installed: runs, sweeps and reports do without it"
        yield Finding("prefect", "ok", text, "pip install 'autoopt[prefect]' for --engine prefect and 'autoopt serve'")
        return
    version, fastapi = metadata.version("prefect"), metadata.version("fastapi")
    if tuple(map(int, re.findall(r"\d+", fastapi)[:2])) >= BROKEN_FASTAPI:
        text = f"Prefect {version} does not start with fastapi {fastapi}"
        yield Finding("prefect", "problem", text, "pip install 'fastapi<0.151'")
        return
    address = os.environ.get("PREFECT_API_URL")
    if not address:
        text = f"Prefect {version}; PREFECT_API_URL is not set: runs do without it"
        yield Finding("prefect", "ok", text, "'autoopt serve' shows runs in Prefect's pages")
    elif _answers(address):
        yield Finding("prefect", "ok", f"Prefect {version}; the server at {without_password(address)} answers")
    else:
        text = f"the server at {without_password(address)} does not answer"
        yield Finding("prefect", "problem", text, "start it with 'prefect server start'")


def _answers(address: str) -> bool:
    import httpx

    try:
        return httpx.get(f"{address.rstrip('/')}/health", timeout=5).is_success
    except (httpx.HTTPError, httpx.InvalidURL):
        return False
