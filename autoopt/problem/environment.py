"""The environment that results depend on: CPU, library versions, host. Read once per process."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TypedDict

from autoopt.distributions import RUNTIMES, installed_distribution
from autoopt.json_codec import JsonValue
from autoopt.target import Accelerator

LIBRARIES = (
    "autoopt",
    "nncf",
    "numpy",
    "onnx",
    "onnx-ir",
    "onnxconverter-common",
    "onnxoptimizer",
    *RUNTIMES,
    "onnxscript",
    "onnxsim",
    "onnxslim",
    "torch",
)
"""Distributions that make or measure models."""
CPUINFO = Path("/proc/cpuinfo")
"""The kernel's description of the CPU. Nothing else in autoopt says which CPU this is."""


class CpuInfo(TypedDict):
    """A CPU."""

    model: str
    cores: int
    """Cores that this process may use."""
    flags: tuple[str, ...]
    """Instruction set features, as the kernel names them."""


@lru_cache(maxsize=1)
def cpu() -> CpuInfo:
    """This machine's CPU. Model name and flags come from `CPUINFO` on Linux."""
    cores = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):  # taskset, cpusets of containers
        cores = len(os.sched_getaffinity(0))
    info = CpuInfo(model=platform.processor() or platform.machine(), cores=cores, flags=())
    try:
        lines = CPUINFO.read_text().splitlines()
    except OSError:
        return info
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            info["model"] = value.strip()
        elif key.strip() in ("flags", "Features"):  # x86 and Arm
            info["flags"] = tuple(sorted(set(value.split())))
            break
    return info


def local_accelerator() -> Accelerator:
    """This machine's CPU as an accelerator."""
    return Accelerator(isa=frozenset(cpu()["flags"]))


@lru_cache(maxsize=1)
def versions() -> Mapping[str, str]:
    """Versions of the installed ones of `LIBRARIES`."""
    installed = {name: installed_distribution(name) for name in LIBRARIES}
    return {each.name if name in RUNTIMES else name: each.version for name, each in installed.items() if each}


@lru_cache(maxsize=1)
def environment() -> Mapping[str, JsonValue]:
    """The environment as it is recorded with every result."""
    return {
        "host": platform.node(),
        "cpu": {"model": cpu()["model"], "cores": cpu()["cores"]},
        "os": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {sys.version.split()[0]}",
        "libraries": dict(versions()),
    }
