"""Where candidates are measured (`target:`, `targets:`) and where passes run (`host:`)."""

from __future__ import annotations

from typing import Any, ClassVar, Final, Literal

from pydantic import Field, field_validator, model_validator

from autoopt.errors import did_you_mean
from autoopt.spec.source import FieldError
from autoopt.spec.strict_model import Name, StrictModel
from autoopt.target import DEFAULT_EP, Accelerator, Target

_DEVICES: Final = {
    "cpu": ("CPU", "OpenVINO", "Dnnl", "Xnnpack", "ArmNN", "ACL", "Azure"),
    "gpu": ("CUDA", "Tensorrt", "NvTensorRTRTX", "Dml", "ROCM", "MIGraphX", "Js", "WebNN", "WebGpu"),
    "npu": ("QNN", "VitisAI", "Nnapi", "VSINPU", "CoreML", "Rknpu", "CANN"),
}
_DEVICE_OF: Final = {f"{name}ExecutionProvider": device for device, names in _DEVICES.items() for name in names}
EXECUTION_PROVIDERS: Final = tuple(_DEVICE_OF)


class HostSpec(StrictModel):
    """Where a pass runs. A bare text is the type: `local` is this machine and interpreter."""

    short: ClassVar[str] = "type"

    type: Literal["local", "python_env", "isolated_ort", "docker", "work_pool"] = "local"
    python: str = ""
    """`python_env`, `isolated_ort`: the interpreter."""
    image: str = ""
    """`docker`: the image."""
    work_pool: str = ""
    """`work_pool`: the Prefect work pool."""
    queue: str = ""

    @model_validator(mode="after")
    def _complete(self) -> HostSpec:
        needs = {"python_env": "python", "isolated_ort": "python", "docker": "image", "work_pool": "work_pool"}
        field = needs.get(self.type)
        if field and not getattr(self, field):
            raise FieldError(f"is required for type {self.type}", place=(field,))
        return self

    @property
    def remote(self) -> bool:
        """Whether it is behind a Prefect work pool."""
        return self.type in ("docker", "work_pool")


class TargetSpec(StrictModel):
    """A device, its execution provider (EP) and runtime. A bare text is the device. Each of device and EP follows from
    the other where only one is given."""

    short: ClassVar[str] = "device"

    name: Name = "local"
    device: Literal["cpu", "gpu", "npu"] = "cpu"
    execution_provider: str = "CPUExecutionProvider"
    threads: int = Field(default=1, ge=0, le=4096)
    """Intra-op threads; 0 is the runtime's default."""
    memory: int | None = Field(default=None, gt=0)
    """Memory of the device in bytes."""
    isa: tuple[str, ...] = Field(default=(), strict=False)
    """Features of its instruction set beyond those found on this machine, as the kernel names them (`avx512_vnni`)."""
    python: str = ""
    """Another interpreter, whose runtime measures."""
    host: HostSpec = HostSpec()
    """Another interpreter or machine that measures."""

    @model_validator(mode="after")
    def _one_place(self) -> TargetSpec:
        if self.python and self.host.type != "local":
            raise FieldError("python and host exclude each other", place=("host",), remedy="write host: {type, python}")
        return self

    @classmethod
    def expand(cls, value: Any) -> Any:
        value = super().expand(value)
        if not isinstance(value, dict):
            return value
        device, provider = value.get("device"), value.get("execution_provider")
        if isinstance(device, str) and device in DEFAULT_EP and "execution_provider" not in value:
            return {**value, "execution_provider": DEFAULT_EP[device]}
        if isinstance(provider, str) and "device" not in value:
            return {**value, "device": _DEVICE_OF.get(provider, "cpu")}
        return value

    @field_validator("execution_provider")
    @classmethod
    def _known_provider(cls, value: str) -> str:
        if value in EXECUTION_PROVIDERS:
            return value
        by_lower = {p.lower(): p for p in EXECUTION_PROVIDERS}
        hint = by_lower.get(value.lower()) or by_lower.get(f"{value.lower()}executionprovider")
        near = f"did you mean {hint!r}?" if hint else did_you_mean(value, EXECUTION_PROVIDERS)
        if near or not value.endswith("ExecutionProvider"):
            raise FieldError(
                f"unknown execution provider {value!r}", remedy=near or "its name ends with ExecutionProvider"
            )
        return value  # one that this version has not heard of

    def target(self) -> Target:
        """What the meters take."""
        return Target(self.name, self.device, self.execution_provider, self.threads, self.memory, self.where.python)

    @property
    def machine(self) -> tuple[str, ...]:
        """What tells the machine where it is from others; empty for this one."""
        return (self.host.type, self.host.work_pool, self.host.queue, self.host.image) if self.host.remote else ()

    @property
    def where(self) -> HostSpec:
        """The host that measures."""
        return HostSpec(type="isolated_ort", python=self.python) if self.python else self.host

    @property
    def words(self) -> str:
        """For people: `CPUExecutionProvider, 2 threads, the runtime of /opt/env/bin/python`."""
        threads = {0: "threads as the runtime likes", 1: "1 thread"}.get(self.threads, f"{self.threads} threads")
        where = self.where
        place = {"docker": f"docker image {where.image}", "work_pool": f"work pool {where.work_pool}"}.get(where.type)
        place = f"the runtime of {where.python}" if where.python else place
        return ", ".join([self.execution_provider, threads, *([place] if place else [])])

    def accelerator(self, isa: frozenset[str] = frozenset()) -> Accelerator:
        """What pass parameters may depend on; `isa`: features found on the machine."""
        return Accelerator(self.device, self.execution_provider, self.memory, isa | frozenset(self.isa))
