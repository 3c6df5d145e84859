"""Options of a proposal, for users who give a model instead of a DAG: target, precision, level."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import PurePath
from typing import Final, Literal, TypeAlias, get_args

from pydantic import ValidationError

from autoopt.errors import InputError, did_you_mean
from autoopt.json_codec import JsonValue, from_json
from autoopt.model.files import split_source
from autoopt.option_names import option
from autoopt.spec.source import dotted
from autoopt.spec.strict_model import problems_of
from autoopt.spec.targets import TargetSpec
from autoopt.target import EXECUTION_PROVIDERS

Precision: TypeAlias = Literal["fp32", "fp16", "mixed", "int8", "int4"]
PRECISIONS: Final[tuple[str, ...]] = get_args(Precision)
HIGHEST: Final = 3
ALL: Final = "all"
MODEL_SUFFIXES: Final = (".onnx", ".pt2", ".py")
EP_NAMES: Final = {
    **{name.removesuffix("ExecutionProvider").lower(): name for name in EXECUTION_PROVIDERS},
    "directml": "DmlExecutionProvider",
    "trt": "TensorrtExecutionProvider",
}
"""Short names of execution providers -> ONNX Runtime's names."""
PROPOSAL_FIELDS: Final = {
    **{name: name for name in ("level", "precision", "fidelity", "keep_signature")},
    **{f"target.{name}": name for name in ("device", "execution_provider", "memory", "threads")},
}
"""Field of a DAG, or one that only proposals have -> option of a proposal."""


def names_model(dag: object) -> bool:
    """Tell if the argument in the place of a DAG is a model, which needs a proposed DAG."""
    if not isinstance(dag, str | PurePath):
        return False
    path = str(dag)
    if "://" in path:
        path = path.partition("?")[0]
    return split_source(path)[0].lower().endswith(MODEL_SUFFIXES)


@dataclass(frozen=True)
class ProposalOptions:
    """Options of a proposal. None means the default: the CPU, every precision that the target supports.

    Raises:
        InputError: an option is wrong; its `others` are further ones.
    """

    device: str | None = None
    execution_provider: str | None = None
    """`all`: every one of the installed runtime and of `runtimes`."""
    precision: str | None = None
    level: int = HIGHEST
    """0 lossless, 1 equal up to rounding, 2 lossy without data, 3 everything."""
    memory: int | None = None
    """Memory of the target in bytes."""
    fidelity: bool | None = None
    """Without evaluation data, outputs on generated inputs are compared with the source's to judge lossy passes.
    None: they are tried and shown, but are never the best; True: they may be the best; False: they are not tried."""
    threads: str | None = None
    """Intra-op threads: a number, `all`, or several to search, separated by commas."""

    keep_signature: bool = False
    """Keep inputs and open dimensions that never change in the data as they are."""
    runtimes: tuple[str, ...] = ()
    """Interpreters whose runtimes are tried too; that of the only target, if it has one."""
    target_name: str = ""
    """Name of one of the targets of this machine; empty before they are known."""

    def __post_init__(self) -> None:
        problems = {str(problem): problem for problem in (*self._own_problems(), *self._target_problems())}
        if problems:
            first, *others = problems.values()
            first.others = tuple(others)
            raise first

    def _own_problems(self) -> Iterator[InputError]:
        if self.precision is not None and self.precision not in PRECISIONS:
            hint = did_you_mean(self.precision, PRECISIONS) or f"one of {', '.join(PRECISIONS)}"
            yield InputError(f"unknown precision {self.precision!r}", where="precision", remedy=hint)
        if self.runtimes and not self.target_name and self.execution_provider not in (None, ALL):
            reason = f"names one provider, and {option('runtime')} further ones"
            yield InputError(reason, where="ep", remedy="name the provider 'all'")
        if isinstance(self.level, bool) or self.level not in range(HIGHEST + 1):
            yield InputError(f"must be 0 to {HIGHEST}, not {self.level!r}", where="level")
        for name in ("fidelity", "keep_signature"):
            value = getattr(self, name)
            if value not in (None, True, False):
                yield InputError(f"must be true or false, not {value!r}", where=name)

    def _target_problems(self) -> Iterator[InputError]:
        try:
            self.target()
        except ValidationError as error:
            for problem in problems_of(error):
                field, _, _ = dotted(problem.place).partition("[")  # the option is one text: its parts have no numbers
                yield InputError(problem.reason, where=field, remedy=problem.remedy)

    @property
    def takes_all_providers(self) -> bool:
        """True if the targets are all providers of this machine, which are not known yet."""
        return self.execution_provider == ALL or bool(self.runtimes and not self.target_name)

    def of_provider(self, provider: str, python: str, name: str) -> ProposalOptions:
        """The options for one of the targets of this machine."""
        runtimes = (python,) if python else ()
        return replace(self, device=None, execution_provider=provider, runtimes=runtimes, target_name=name)

    @property
    def accepts_unverified(self) -> bool:
        """True if a lossy model that only generated inputs judge may be the best: the user asked for one."""
        return bool(self.fidelity) or self.precision not in (None, "fp32")

    def target(self) -> TargetSpec:
        """Return the target."""
        fields: dict[str, object] = {}
        if self.device is not None:
            fields["device"] = self.device
        if self.memory is not None:
            fields["memory"] = self.memory
        if self.target_name:
            fields |= {"name": self.target_name, "python": "".join(self.runtimes)}
        if self.execution_provider not in (None, ALL):
            assert self.execution_provider is not None
            fields["execution_provider"] = EP_NAMES.get(self.execution_provider.lower(), self.execution_provider)
        if self.threads is not None:
            counts = [int(count) if count.isdecimal() else count for count in str(self.threads).split(",")]
            fields["threads"] = counts
        return TargetSpec.model_validate(fields)

    def to_json(self) -> dict[str, JsonValue]:
        """Return the options that differ from the defaults."""
        defaults = asdict(ProposalOptions())
        return {name: value for name, value in asdict(self).items() if value != defaults[name]}

    @staticmethod
    def from_json(data: Mapping[str, JsonValue]) -> ProposalOptions:
        """Reverse `to_json`."""
        return from_json(ProposalOptions, data)


def refuse_proposal_options(options: ProposalOptions | None) -> None:
    """Refuse options that a DAG which the user wrote states itself.

    Raises:
        InputError: an option is set.
    """
    if options is not None and options != ProposalOptions():
        names = ", ".join(
            {"execution_provider": "ep", "runtimes": "runtime"}.get(name, name) for name in options.to_json()
        )
        remedy = "write it in the DAG"
        if options.takes_all_providers:
            remedy = "write the targets in the DAG, as 'autoopt init MODEL --ep all' or --runtime PYTHON does"
        raise InputError("applies to a bare model, not to a DAG", where=names, remedy=remedy)
