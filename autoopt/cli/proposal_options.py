"""Options for bare models: what a proposed graph contains, and the target of single passes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from autoopt.cli.completion import complete_provider, complete_words
from autoopt.json_codec import without_nulls

if TYPE_CHECKING:
    from autoopt.spec.proposal_options import ProposalOptions
    from autoopt.target import Accelerator

_ONLY = "Bare model only: "
_complete_device = complete_words("cpu", "gpu", "npu")
TargetDevice = Annotated[
    str | None,
    typer.Option("--device", help="Device of the target: cpu (default), gpu or npu.", autocompletion=_complete_device),
]
TargetProvider = Annotated[
    str | None,
    typer.Option(
        "--ep",
        "--execution-provider",
        help="Execution provider of the target: cpu, cuda, tensorrt, ...",
        autocompletion=complete_provider,
    ),
]


def accelerator_of(device: str | None, execution_provider: str | None) -> Accelerator:
    """The device and execution provider that passes are described for and run for, with this machine's CPU features.

    Raises:
        InputError: one of them is unknown.
    """
    from autoopt.engine.work.environment import cpu
    from autoopt.spec.proposal_options import ProposalOptions

    target = ProposalOptions(device=device, execution_provider=execution_provider).target()
    return target.accelerator(frozenset(cpu()["flags"]))


@dataclass(frozen=True)
class ProposalFlags:
    """Options of the commands that propose a graph for a bare model, as given; None for those that are not."""

    level: Annotated[
        int | None,
        typer.Option(
            help=_ONLY
            + "which passes to try, 0 lossless, 1 equal up to rounding, 2 lossy without data, 3 all (default).",
            autocompletion=complete_words("0", "1", "2", "3"),
        ),
    ] = None
    precision: Annotated[
        str | None,
        typer.Option(
            help=_ONLY + "fp32, fp16, mixed, int8 or int4 [default: all that suit the target].",
            autocompletion=complete_words("fp32", "fp16", "mixed", "int8", "int4"),
        ),
    ] = None
    device: Annotated[
        str | None,
        typer.Option(help=_ONLY + "target device, cpu (default), gpu or npu.", autocompletion=_complete_device),
    ] = None
    execution_provider: Annotated[
        str | None,
        typer.Option(
            "--ep",
            help=_ONLY + "execution provider, such as cpu, cuda, tensorrt, dml, openvino, qnn.",
            autocompletion=complete_provider,
        ),
    ] = None
    memory: Annotated[int | None, typer.Option(min=1, help=_ONLY + "memory of the target in bytes.")] = None
    fidelity: Annotated[
        bool | None,
        typer.Option(
            "--fidelity/--no-fidelity",
            help=_ONLY + "without data, accept lossy models that are close to yours on generated inputs, or do not try "
            "any [default: try them and show the best one].",
        ),
    ] = None
    threads: Annotated[
        str | None,
        typer.Option(
            help=_ONLY + "intra-op threads: a number, all, or several to search, such as 1,2,all [default: searched].",
            autocompletion=complete_words("1", "all"),
        ),
    ] = None
    keep_signature: Annotated[
        bool,
        typer.Option(
            "--keep-signature",
            help=_ONLY + "keep inputs and open dimensions that never change in the data as they are.",
        ),
    ] = False

    def options(self) -> ProposalOptions:
        """The options as the engine takes them.

        Raises:
            InputError: an unknown precision or level.
        """
        # Imported only now: it loads pydantic, which --help does not need.
        from autoopt.spec.proposal_options import ProposalOptions

        return ProposalOptions.from_json(without_nulls(asdict(self)))
