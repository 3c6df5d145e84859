"""Targets, where candidates are measured (`target:`, `targets:`), and hosts, where passes run (`host:`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final, Literal, TypeAlias

from pydantic import Field, field_validator, model_validator

from autoopt.errors import did_you_mean
from autoopt.spec.source import FieldError, below
from autoopt.spec.strict_model import Name, StrictModel
from autoopt.target import ALL_THREADS, DEFAULT_EP, DEVICE_OF, EXECUTION_PROVIDERS, Accelerator, Target

HostType: TypeAlias = Literal["local", "python_env", "isolated_ort"]

MAX_THREADS: Final = 4096


def _read_thread_count(value: object) -> int:
    if value == "all":
        return ALL_THREADS
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_THREADS:
        raise FieldError(f"must be a number from 0 to {MAX_THREADS}, all, or a list of these, not {value!r}")
    return value


def describe_threads(threads: int | Sequence[int]) -> str:
    """Describe a number of threads, or several to choose from: `1, 2 or the default number of threads`."""
    if not isinstance(threads, int):
        words = list(map(_count_word, threads))
        return f"{', '.join(words[:-1])} or {words[-1]} threads"
    if threads == 1:
        return "1 thread"
    return f"{_count_word(threads)} threads"


def _count_word(threads: int) -> str:
    if threads == ALL_THREADS:
        return "the default number of"
    return str(threads)


class HostSpec(StrictModel):
    """The interpreter in which a pass runs. A bare text is the type; `local` is this interpreter."""

    short: ClassVar[str] = "type"

    type: HostType = "local"
    """Another interpreter of this machine: `python_env` has autoopt's libraries, `isolated_ort` only a runtime."""
    python: str = ""
    """`python_env`, `isolated_ort`: the interpreter."""

    @model_validator(mode="after")
    def _check_required(self) -> HostSpec:
        if self.type != "local" and not self.python:
            raise FieldError(f"is required for type {self.type}", place=("python",))
        return self

    @property
    def elsewhere(self) -> str:
        """Description for people, `python_env /opt/env/bin/python`; empty for this interpreter."""
        if self.type == "local":
            return ""
        return f"{self.type} {self.python}"


class TargetSpec(StrictModel):
    """A device, its execution provider (EP) and runtime. A bare text is the device.

    If only one of device and EP is given, the other follows from it.
    """

    short: ClassVar[str] = "device"

    name: Name = "local"
    """Name among several targets."""
    device: Literal["cpu", "gpu", "npu"] = "cpu"
    """Kind of device; follows from the execution provider if only that is given."""
    execution_provider: str = "CPUExecutionProvider"
    """ONNX Runtime's name of the execution provider; follows from the device if only that is given."""
    threads: int | tuple[int, ...] = 1
    """Intra-op threads; 0, also written `all`, is the runtime's default. The numbers of a list are searched, and the
    source model runs with the runtime's default."""
    memory: int | None = Field(default=None, gt=0)
    """Memory of the device in bytes."""
    isa: tuple[str, ...] = Field(default=(), strict=False)
    """Features of its instruction set that this machine lacks, as the kernel names them (`avx512_vnni`)."""
    python: str = ""
    """Another interpreter, whose runtime measures."""
    host: HostSpec = HostSpec()
    """Another interpreter that measures."""
    work_pool: str = ""
    """Another machine: the one whose Prefect worker takes runs from this work pool."""

    def is_elsewhere(self, pool: str) -> bool:
        """True for the target of another machine, if this one takes runs from `pool` (empty: from none)."""
        return self.work_pool not in ("", pool)

    @model_validator(mode="after")
    def _check_host(self) -> TargetSpec:
        if self.python and self.host.type != "local":
            raise FieldError("python and host exclude each other", place=("host",), remedy="write host: {type, python}")
        return self

    @classmethod
    def expand(cls, value: object) -> object:
        """Convert the short form to the full one, and complete device and EP."""
        value = super().expand(value)
        if not isinstance(value, dict):
            return value
        device, provider = value.get("device"), value.get("execution_provider")
        if isinstance(device, str) and device in DEFAULT_EP and "execution_provider" not in value:
            return {**value, "execution_provider": DEFAULT_EP[device]}
        if isinstance(provider, str) and "device" not in value:
            return {**value, "device": DEVICE_OF.get(provider, "cpu")}
        return value

    @field_validator("threads", mode="before")
    @classmethod
    def _read_threads(cls, value: object) -> object:
        if not isinstance(value, list | tuple):
            return _read_thread_count(value)
        if not value:
            raise FieldError("is empty", remedy="write a number, or a list such as [1, 2, all]")
        counts = []
        for index, item in enumerate(value):
            with below(index):
                counts.append(_read_thread_count(item))
        choices = tuple(dict.fromkeys(counts))
        if len(choices) == 1:
            return choices[0]
        return choices

    @field_validator("execution_provider")
    @classmethod
    def _check_provider(cls, value: str) -> str:
        if value in EXECUTION_PROVIDERS:
            return value
        hint, stem = "", value.removesuffix("ExecutionProvider")
        if did_you_mean(stem, [name.removesuffix("ExecutionProvider") for name in EXECUTION_PROVIDERS]):
            hint = did_you_mean(value, EXECUTION_PROVIDERS)  # the common end alone makes names alike
        for provider in EXECUTION_PROVIDERS:
            if value.lower() in (provider.lower(), provider.removesuffix("ExecutionProvider").lower()):
                hint = f"did you mean {provider!r}?"
        if not hint and value.endswith("ExecutionProvider"):
            return value  # an EP that is newer than this version
        remedy = hint or "give a short name such as cpu or cuda, or one that ends with ExecutionProvider"
        raise FieldError(f"unknown execution provider {value!r}", remedy=remedy)

    def target(self) -> Target:
        """Return what the meters need to know."""
        threads = self.threads if isinstance(self.threads, int) else ALL_THREADS
        return Target(self.name, self.device, self.execution_provider, threads, self.memory, self.where.python)

    def accelerator(self, isa: frozenset[str] = frozenset()) -> Accelerator:
        """Return what pass parameters may depend on; `isa` are the features found on the machine."""
        return Accelerator(
            self.device, self.execution_provider, self.memory, isa | frozenset(self.isa), self.thread_choices
        )

    @property
    def thread_choices(self) -> tuple[int, ...]:
        """The numbers of threads to search; empty if the number is fixed."""
        if isinstance(self.threads, int):
            return ()
        return self.threads

    @property
    def where(self) -> HostSpec:
        """The host that measures."""
        if self.python:
            return HostSpec(type="isolated_ort", python=self.python)
        return self.host

    @property
    def words(self) -> str:
        """Description for people: `CPUExecutionProvider, 2 threads, the runtime of /opt/env/bin/python`."""
        parts = [f"work pool {self.work_pool}"] if self.work_pool else []
        parts.append(self.execution_provider)
        parts.append(describe_threads(self.threads))
        host = self.where
        if host.python:
            parts.append(f"the runtime of {host.python}")
        return ", ".join(parts)
