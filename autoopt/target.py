"""The place where a model runs: device, execution provider (EP), runtime and threads.

`autoopt.json_codec` writes their JSON.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from autoopt.json_codec import JsonValue, to_json

DEFAULT_EP: Final = {"cpu": "CPUExecutionProvider", "gpu": "CUDAExecutionProvider", "npu": "QNNExecutionProvider"}
"""Execution provider by device, where the user names none."""
_DEVICES: Final = {
    "cpu": ("CPU", "OpenVINO", "Dnnl", "Xnnpack", "ArmNN", "ACL", "Azure"),
    "gpu": ("CUDA", "Tensorrt", "NvTensorRTRTX", "Dml", "ROCM", "MIGraphX", "Js", "WebNN", "WebGpu"),
    "npu": ("QNN", "VitisAI", "Nnapi", "VSINPU", "CoreML", "Rknpu", "CANN"),
}
DEVICE_OF: Final = {f"{name}ExecutionProvider": device for device, names in _DEVICES.items() for name in names}
"""Kind of device by ONNX Runtime's name of the execution provider."""
EXECUTION_PROVIDERS: Final = tuple(DEVICE_OF)
ALL_THREADS: Final = 0
"""As many intra-op threads as the runtime takes by itself: one for each physical core."""


@dataclass(frozen=True)
class Accelerator:
    """The facts of a target that pass parameters may depend on."""

    device: str = "cpu"
    execution_provider: str = "CPUExecutionProvider"
    memory: int | None = None
    """Device memory in bytes; None if unknown."""
    isa: frozenset[str] = frozenset()
    """Instruction set features in lower case, as the kernel names them: `avx512_vnni`, `amx_int8`."""
    threads: tuple[int, ...] = ()
    """Numbers of intra-op threads to choose from; empty if the target fixes it."""

    @property
    def thread_values(self) -> list[int | None]:
        """Values of the session option for these threads: None leaves it at the target's default, all of them."""
        return [threads or None for threads in self.threads]


@dataclass(frozen=True)
class Target:
    """The place where candidates are measured."""

    name: str = "local"
    device: str = "cpu"
    execution_provider: str = "CPUExecutionProvider"
    threads: int = 1
    """Intra-op threads; 0 leaves the choice to the runtime, as for a target that lists several."""
    memory: int | None = None
    """Device memory in bytes; None if unknown."""
    python: str = ""
    """Interpreter whose runtime measures; empty for the current one."""
    plugin: str = ""
    """The plug-in that has the execution provider: `onnxruntime-ep-openvino==1.8.1`; empty if onnxruntime has it."""

    @property
    def content(self) -> dict[str, JsonValue]:
        """Everything that results depend on: all fields but the name that the user chose."""
        return to_json(replace(self, name="local"))
