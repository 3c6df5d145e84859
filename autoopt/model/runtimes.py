"""The onnxruntime of this interpreter: the distribution that it came with, and whether its providers can be used."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final

from autoopt.errors import one_line

_KINDS: Final = ("", "-gpu", "-openvino", "-directml", "-qnn", "-rocm", "-migraphx", "-cann", "-training")
DISTRIBUTIONS: Final = tuple(f"onnxruntime{kind}" for kind in _KINDS)
"""Distributions with the module `onnxruntime`."""
ELSEWHERE: Final = {"AzureExecutionProvider": "it runs models in a cloud, not on this machine"}
"""Providers that no model of this machine is searched for, with the reason."""
_MISSING: Final = re.compile(r"with error: (\S+): cannot open shared object file")


def runtime_distribution() -> str:
    """The distribution that onnxruntime came with, such as `onnxruntime-openvino`; `onnxruntime` if none says so."""
    import onnxruntime

    # Another interpreter may lend modules, whose distributions are on the path too.
    folder = str(Path(str(onnxruntime.__file__)).parents[1])
    installed = {each.metadata["Name"].lower() for each in metadata.distributions(path=[folder])}
    return next(filter(installed.__contains__, DISTRIBUTIONS), DISTRIBUTIONS[0])


def first_use(provider: str) -> str:
    """Run a model of one addition on a provider; returns the reason why that cannot be done, or an empty text."""
    import numpy as np
    import onnxruntime as ort
    from onnx import TensorProto, helper

    if provider in ELSEWHERE:
        return ELSEWHERE[provider]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "first_use", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    output: list[str] = []
    with _error_output(output):
        ort.set_default_logger_severity(3)
        try:
            session = ort.InferenceSession(model.SerializeToString(), providers=[provider])
            session.run(None, {"x": np.ones(1, np.float32)})
            if provider in session.get_providers():
                return ""
        except Exception as error:
            output.append(f"EP Error {error}")
    return _in_short("\n".join(output))


def _in_short(output: str) -> str:
    """The reason in what onnxruntime wrote: the library that it did not find, or else its last words."""
    missing = _MISSING.search(output)
    if missing:
        return f"it needs {missing[1]}, which is not on this machine"
    return f"onnxruntime does not load it: {one_line(output.strip())[-200:] or 'it does not say why'}"


@contextmanager
def _error_output(output: list[str]) -> Iterator[None]:
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
