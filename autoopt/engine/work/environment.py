"""What the results depend on besides the model: CPU, versions, host. Read once per process."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

LIBRARIES = (
    "autoopt",
    "nncf",
    "numpy",
    "onnx",
    "onnx-ir",
    "onnxconverter-common",
    "onnxoptimizer",
    "onnxruntime",
    "onnxscript",
    "onnxsim",
    "onnxslim",
    "scikit-learn",
    "torch",
)


@lru_cache(maxsize=1)
def cpu() -> Mapping[str, Any]:
    """Model name, core count and ISA features of this machine's CPU (Linux: /proc/cpuinfo)."""
    model, flags = platform.processor() or platform.machine(), frozenset[str]()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                model = value.strip()
            elif key.strip() in ("flags", "Features"):
                flags = frozenset(value.split())
                break
    except OSError:
        pass
    return {"model": model, "cores": os.cpu_count() or 1, "flags": tuple(sorted(flags))}


@lru_cache(maxsize=1)
def versions() -> Mapping[str, str]:
    """Versions of the libraries that make or measure models; absent ones are left out."""
    return {name: found for name in LIBRARIES if (found := library_version(name))}


@lru_cache(maxsize=128)
def library_version(name: str) -> str:
    """The installed version of a distribution, or an empty string."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


@lru_cache(maxsize=1)
def environment() -> Mapping[str, Any]:
    """Everything recorded with a result, as JSON: host, CPU, operating system, Python, libraries."""
    return {
        "host": platform.node(),
        "cpu": {"model": cpu()["model"], "cores": cpu()["cores"]},
        "os": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {sys.version.split()[0]}",
        "libraries": dict(versions()),
    }
