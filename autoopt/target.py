"""Where a model is to run: device, execution provider (EP), runtime, threads."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

DEFAULT_EP = {"cpu": "CPUExecutionProvider", "gpu": "CUDAExecutionProvider", "npu": "QNNExecutionProvider"}


@dataclass(frozen=True)
class Accelerator:
    """What pass parameters may depend on: device, EP, device memory in bytes (None: unknown), ISA features
    (lower case, as the kernel names them: `avx512_vnni`, `amx_int8`)."""

    device: str = "cpu"
    execution_provider: str = "CPUExecutionProvider"
    memory: int | None = None
    isa: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Target:
    """Where candidates are measured. `threads` is intra-op threads, 0 means the runtime's default.
    `python`: another interpreter whose runtime measures; empty means this one."""

    name: str = "local"
    device: str = "cpu"
    execution_provider: str = "CPUExecutionProvider"
    threads: int = 1
    memory: int | None = None
    python: str = ""

    @property
    def content(self) -> dict[str, Any]:
        """What results depend on: everything but what the user calls it."""
        return asdict(replace(self, name="local"))
