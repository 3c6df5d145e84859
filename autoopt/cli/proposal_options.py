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
    typer.Option(
        help=_ONLY + "which passes to try, 0 lossless, 1 equal up to rounding, 2 lossy without data, 3 all (default)."
    ),
]
Precision = Annotated[
    str | None,
    typer.Option(help=_ONLY + "fp32, fp16, mixed, int8 or int4 [default: all that suit the target]."),
]
Device = Annotated[str | None, typer.Option(help=_ONLY + "target device, cpu (default), gpu or npu.")]
Provider = Annotated[
    str | None, typer.Option(help=_ONLY + "execution provider, such as cpu, cuda, tensorrt, dml, openvino, qnn.")
]
Memory = Annotated[int | None, typer.Option(min=1, help=_ONLY + "memory of the target in bytes.")]
Fidelity = Annotated[
    bool | None,
    typer.Option(
        "--fidelity/--no-fidelity",
        help=_ONLY + "without data, accept lossy models that are close to yours on generated inputs, or do not try "
        "any [default: try them and show the best one].",
    ),
]
Threads = Annotated[
    str | None,
    typer.Option(
        help=_ONLY + "intra-op threads: a number, all, or several to search, such as 1,2,all [default: searched]."
    ),
]
KeepSignature = Annotated[
    bool,
    typer.Option(
        "--keep-signature", help=_ONLY + "keep inputs and open dimensions that never change in the data as they are."
    ),
]
TargetDevice = Annotated[str | None, typer.Option("--device", help="Device of the target: cpu (default), gpu or npu.")]
TargetProvider = Annotated[
    str | None,
    typer.Option("--ep", "--execution-provider", help="Execution provider of the target: cpu, cuda, tensorrt, ..."),
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


def make_proposal_options(  # noqa: PLR0913, PLR0917  options of the commands
    level: int | None,
    precision: str | None,
    device: str | None,
    execution_provider: str | None,
    memory: int | None,
    fidelity: bool | None,
    threads: str | None = None,
    keep_signature: bool = False,
) -> ProposalOptions:
    """Collect the options.

    Raises:
        InputError: an unknown precision or level.
    """
    from autoopt.spec.proposal_options import HIGHEST, ProposalOptions

    if level is None:
        level = HIGHEST
    return ProposalOptions(
        device=device,
        execution_provider=execution_provider,
        precision=precision,
        level=level,
        memory=memory,
        fidelity=fidelity,
        threads=threads,
        keep_signature=keep_signature,
    )
