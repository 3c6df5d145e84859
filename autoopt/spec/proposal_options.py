"""What a user asks of a proposal instead of writing a DAG: target, precision, level. Light."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import PurePath
from typing import Any, Final, Literal, TypeAlias, get_args

from pydantic import ValidationError

from autoopt.errors import InputError, did_you_mean
from autoopt.spec.targets import EXECUTION_PROVIDERS, TargetSpec
from autoopt.spec.validation import input_error

Precision: TypeAlias = Literal["fp32", "fp16", "mixed", "int8", "int4"]
PRECISIONS: Final[tuple[str, ...]] = get_args(Precision)
HIGHEST: Final = 3
MODEL_SUFFIXES: Final = (".onnx", ".pt2")
_SHORT: Final = {name.removesuffix("ExecutionProvider").lower(): name for name in EXECUTION_PROVIDERS}
_ALSO: Final = {"directml": "DmlExecutionProvider", "trt": "TensorrtExecutionProvider"}


def names_model(dag: Any) -> bool:
    """Whether what stands in the place of a DAG is a model, for which one is to be proposed."""
    if not isinstance(dag, str | PurePath):
        return False
    path = str(dag).partition("?")[0] if "://" in str(dag) else str(dag)
    return path.lower().endswith(MODEL_SUFFIXES)


@dataclass(frozen=True)
class ProposalOptions:
    """What to propose for. What is None follows from the rest: the CPU, every precision that the target has.

    `level`: 0 lossless, 1 equal up to rounding, 2 lossy without data, 3 everything. `fidelity`: without evaluation
    data, lossy passes are judged by how close they stay to the source model on made-up inputs. `memory`: of the target,
    in bytes.
    """

    device: str | None = None
    execution_provider: str | None = None
    precision: str | None = None
    level: int = HIGHEST
    memory: int | None = None
    fidelity: bool = False

    def __post_init__(self) -> None:
        if self.precision is not None and self.precision not in PRECISIONS:
            hint = did_you_mean(self.precision, PRECISIONS) or f"one of {', '.join(PRECISIONS)}"
            raise InputError(f"unknown precision {self.precision!r}", where="precision", remedy=hint)
        if isinstance(self.level, bool) or self.level not in range(HIGHEST + 1):
            raise InputError(f"must be 0 to {HIGHEST}, not {self.level!r}", where="level")

    def target(self) -> TargetSpec:
        """The target meant.

        Raises:
            InputError: an unknown device or execution provider.
        """
        written: dict[str, Any] = {k: v for k, v in (("device", self.device), ("memory", self.memory)) if v is not None}
        if self.execution_provider is not None:
            name = self.execution_provider.lower()
            written["execution_provider"] = {**_SHORT, **_ALSO}.get(name, self.execution_provider)
        try:
            return TargetSpec.model_validate(written)
        except ValidationError as error:
            raise input_error(error) from None

    def to_json(self) -> dict[str, Any]:
        """What differs from the defaults."""
        plain = asdict(ProposalOptions())
        return {name: value for name, value in asdict(self).items() if value != plain[name]}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> ProposalOptions:
        """The reverse of `to_json`."""
        return ProposalOptions(**data)


def refuse_proposal_options(wish: ProposalOptions | None) -> None:
    """For a DAG that the user wrote: it says such things itself.

    Raises:
        InputError: something is wished for.
    """
    if wish is not None and wish != ProposalOptions():
        names = ", ".join("ep" if name == "execution_provider" else name for name in wish.to_json())
        raise InputError("goes with a bare model, not with a DAG", where=names, remedy="write it in the DAG")
