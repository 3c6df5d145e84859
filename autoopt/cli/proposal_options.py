"""Options of the commands that propose a graph for a bare model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from autoopt.spec.proposal_options import ProposalOptions
    from autoopt.target import Accelerator

_ONLY = "Bare model only: "
Level = Annotated[
    int | None,
    typer.Option(help=_ONLY + "0 lossless, 1 equal up to rounding, 2 lossy without data, 3 everything (default)."),
]
Precision = Annotated[
    str | None,
    typer.Option(help=_ONLY + "fp32, fp16, mixed, int8 or int4; without it, all that suit the target."),
]
Device = Annotated[str | None, typer.Option(help=_ONLY + "cpu (default), gpu or npu.")]
Provider = Annotated[
    str | None, typer.Option(help=_ONLY + "execution provider: cpu, cuda, tensorrt, dml, openvino, qnn, ...")
]
Memory = Annotated[int | None, typer.Option(min=1, help=_ONLY + "the target's memory in bytes.")]
Fidelity = Annotated[
    bool,
    typer.Option(
        "--fidelity", help=_ONLY + "without data, try lossy passes and judge them by closeness to the source model."
    ),
]


TargetDevice = Annotated[str | None, typer.Option("--device", help="Device of the target: cpu (default), gpu or npu.")]
TargetProvider = Annotated[
    str | None,
    typer.Option("--ep", "--execution-provider", help="Execution provider of the target: cpu, cuda, tensorrt, ..."),
]


def accelerator_of(device: str | None, execution_provider: str | None) -> Accelerator:
    """What passes are described and run for.

    Raises:
        InputError: an unknown device or execution provider.
    """
    from autoopt.spec.proposal_options import ProposalOptions
    from autoopt.target import Accelerator

    target = ProposalOptions(device=device, execution_provider=execution_provider).target()
    return Accelerator(target.device, target.execution_provider)


def make_wish(
    level: int | None,
    precision: str | None,
    device: str | None,
    execution_provider: str | None,
    memory: int | None,
    fidelity: bool,
) -> ProposalOptions:
    """What the options ask for.

    Raises:
        InputError: an unknown precision or level.
    """
    from autoopt.spec.proposal_options import HIGHEST, ProposalOptions

    return ProposalOptions(
        device=device,
        execution_provider=execution_provider,
        precision=precision,
        level=HIGHEST if level is None else level,
        memory=memory,
        fidelity=fidelity,
    )
