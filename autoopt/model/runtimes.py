"""The onnxruntime of this interpreter: its distribution, its providers and plug-ins, and whether they can be used."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final

from autoopt.distributions import RUNTIMES
from autoopt.errors import one_line

ELSEWHERE: Final = {"AzureExecutionProvider": "it runs models in a cloud, not on this machine"}
"""Providers that no model of this machine is searched for, with the reason."""
_MISSING: Final = re.compile(r"(\S+): cannot open shared object file")
_OTHER_VERSION: Final = re.compile(r"requested API version \[(\d+)\] is not available")
_ADDITION: Final = '<ir_version: 8, opset_import: ["": 13]> first_use (float[1] x) => (float[1] y) { y = Add(x, x) }'


def runtime_distribution() -> str:
    """The distribution that onnxruntime came with, such as `onnxruntime-openvino`; `onnxruntime` if none says so."""
    import onnxruntime

    # Another interpreter may lend modules, whose distributions are on the path too.
    folder = str(Path(str(onnxruntime.__file__)).parents[1])
    installed = {each.metadata["Name"].lower() for each in metadata.distributions(path=[folder])}
    return next(filter(installed.__contains__, RUNTIMES), RUNTIMES[0])


@dataclass(frozen=True)
class Providers:
    """The execution providers of onnxruntime and of the plug-ins beside it."""

    providers: list[str] = field(default_factory=list)
    unusable: dict[str, str] = field(default_factory=dict)
    """Providers that cannot be used, and plug-ins that do not load, with the reason."""
    plugins: dict[str, str] = field(default_factory=dict)
    """The plug-in that has a provider, as a requirement: `onnxruntime-ep-openvino==1.8.1`."""
    devices: dict[str, list[str]] = field(default_factory=dict)
    """The devices of a provider, where onnxruntime tells: `CPU`, `GPU.0`."""


@cache
def find_providers() -> Providers:
    """Find the execution providers, and try each."""
    import onnxruntime as ort
    from onnxruntime.capi import _pybind_state

    from autoopt.model.run_package import BUILT_IN, plugin_devices, plugins

    ort.set_default_logger_severity(3)
    found = Providers([name for name in ort.get_available_providers() if name in BUILT_IN])
    for plugin in plugins():
        _add_plugin(found, plugin)
    for name in found.providers:
        reason = first_use(name)
        if reason:
            found.unusable[name] = reason
        found.devices[name] = [each.device.type.name for each in plugin_devices(name)]
    if hasattr(_pybind_state, "get_available_openvino_device_ids"):
        found.devices["OpenVINOExecutionProvider"] = _pybind_state.get_available_openvino_device_ids()
    return found


def _add_plugin(found: Providers, plugin: str) -> None:
    from autoopt.model.run_package import BUILT_IN, plugin_devices, register

    distribution = plugin.replace("_", "-")
    output: list[str] = []
    with native_output(output):
        try:
            provider = register(plugin)
            if provider in BUILT_IN:
                return
            if plugin_devices(provider):
                found.providers.append(provider)
                found.plugins[provider] = f"{distribution}=={metadata.version(distribution)}"
                return
        except Exception as error:
            output.append(str(error))
    found.unusable[distribution] = _in_short("\n".join(output)) or "it takes no device of this machine"


def first_use(provider: str) -> str:
    """Run a model of one addition on a provider; returns the reason why that cannot be done, or an empty text."""
    import numpy as np
    import onnxruntime as ort
    from onnx import parser

    from autoopt.model.run_package import session_arguments
    from autoopt.model.session import session_document

    if provider in ELSEWHERE:
        return ELSEWHERE[provider]
    model = parser.parse_model(_ADDITION)
    output: list[str] = []
    with native_output(output):
        try:
            options, arguments = session_arguments(session_document({}, provider))
            session = ort.InferenceSession(model.SerializeToString(), options, **arguments)
            session.run(None, {"x": np.ones(1, np.float32)})
            if provider in session.get_providers():
                return ""
        except Exception as error:
            output.append(f"EP Error {error}")
    return _in_short("\n".join(output)) or "onnxruntime does not load it, and does not say why"


def _in_short(output: str) -> str:
    """The reason in what onnxruntime wrote: the library or version that it lacks, or else its last words, if any."""
    missing, version = _MISSING.search(output), _OTHER_VERSION.search(output)
    if missing:
        return f"it needs {missing[1]}, which is not on this machine"
    if version:
        return f"it needs onnxruntime 1.{version[1]} or newer"
    if not output.strip():
        return ""
    return f"onnxruntime does not load it: {one_line(output.strip())[-200:]}"


@contextmanager
def native_output(output: list[str]) -> Iterator[None]:
    """Append to `output` what native code writes to standard output and error meanwhile."""
    with TemporaryFile() as file:
        kept = [os.dup(number) for number in (1, 2)]
        try:
            for number in (1, 2):
                os.dup2(file.fileno(), number)
            yield
        finally:
            for number, copy in zip((1, 2), kept, strict=True):
                os.dup2(copy, number)
                os.close(copy)
            file.seek(0)
            output.append(file.read().decode(errors="replace"))
