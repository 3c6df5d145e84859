"""The installed distributions that autoopt depends on. onnxruntime comes in several, all with the same module."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from importlib.metadata import Distribution

_KINDS: Final = ("", "-gpu", "-openvino", "-directml", "-qnn", "-rocm", "-migraphx", "-cann", "-training")
RUNTIMES: Final = tuple(f"onnxruntime{kind}" for kind in _KINDS)
"""Distributions with the module `onnxruntime`."""


@lru_cache(maxsize=128)
def installed_distribution(name: str) -> Distribution | None:
    """The distribution of this name; for `onnxruntime`, any of the `RUNTIMES`. None if it is not installed."""
    import importlib.metadata  # it takes as long as the rest of a command that the store answers

    for each in RUNTIMES if name == "onnxruntime" else (name,):
        try:
            return importlib.metadata.distribution(each)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


@lru_cache(maxsize=128)
def library_version(name: str) -> str:
    """The version of a distribution, as `installed_distribution` finds it; empty if it is not installed."""
    found = installed_distribution(name)
    return "" if found is None else found.version
