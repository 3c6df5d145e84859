"""Gather the facts from which `autoopt.dag.proposal` writes a pass graph when a model comes without one."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from autoopt.dag.proposal.narrowing import Narrowing
from autoopt.model.fetch import url_name
from autoopt.model.inspection import Inspection
from autoopt.problem.environment import cpu
from autoopt.spec.proposal_options import ProposalOptions
from autoopt.store import Store, open_store, store_exists

if TYPE_CHECKING:
    from autoopt.dag.proposal.exclusions import ProposalInputs
    from autoopt.data.description import DataDescription


MANY_CORES = 4
"""Cores from which on two threads are not all."""


def model_name(model: str) -> str:
    """The name of a model: its file's name, or its folder's name if the file is called `model`.

    Host, user and query of a URL are left out, because they may be secrets.
    """
    if "://" in model:
        name = url_name(model)
        folder = PurePosixPath(urlsplit(model.split("::")[0]).path).parent.name
    else:
        path = Path(model).absolute()
        name, folder = path.name, path.parent.name
    if PurePosixPath(name).stem == "model" and folder:
        return folder
    return name


def machine_options(options: ProposalOptions) -> ProposalOptions:
    """Complete the options of a proposal: on a CPU with several cores, threads that the user left open are searched."""
    cores = cpu()["cores"]
    if options.threads is not None or cores < 2 or options.target().device != "cpu":
        return options
    if cores < MANY_CORES:
        return replace(options, threads="1,all")
    return replace(options, threads="1,2,all")


def proposal_inputs(
    model: str,
    inspection: Inspection,
    description: DataDescription | None,
    has_calibration: bool,
    proposal_options: ProposalOptions,
    narrowing: Narrowing,
) -> ProposalInputs:
    """The facts that a proposal rests on; `description` describes the evaluation data, None without data."""
    from autoopt.dag.proposal.exclusions import ProposalInputs

    if proposal_options.keep_signature:
        narrowing = Narrowing()
    return ProposalInputs(
        inspection=inspection,
        name=model_name(model),
        evaluation=description is not None,
        labels=description is not None and description.labels,
        calibration=has_calibration,
        fidelity=proposal_options.fidelity is not False,
        narrowing=narrowing,
        smaller_counts=proposal_options.precision is not None,
    )


def existing_store() -> AbstractContextManager[Store | None]:
    """Open the store if it exists; None otherwise."""
    if store_exists():
        return open_store()
    return nullcontext()
