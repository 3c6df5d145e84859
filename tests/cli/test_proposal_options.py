"""Options of the commands that propose a graph for a bare model."""

from __future__ import annotations

import pytest

from autoopt.cli.proposal_options import ProposalFlags, accelerator_of
from autoopt.errors import InputError
from autoopt.spec.proposal_options import HIGHEST, ProposalOptions


def test_without_options_the_proposal_is_the_default() -> None:
    assert ProposalFlags().options() == ProposalOptions()


def test_level_0_is_not_the_default() -> None:
    assert ProposalFlags(level=0).options().level == 0
    assert ProposalFlags(fidelity=False).options().level == HIGHEST


@pytest.mark.parametrize(
    ("device", "provider", "expected"),
    [
        (None, None, ("cpu", "CPUExecutionProvider")),
        ("gpu", None, ("gpu", "CUDAExecutionProvider")),
        (None, "cuda", ("gpu", "CUDAExecutionProvider")),
        (None, "CUDAExecutionProvider", ("gpu", "CUDAExecutionProvider")),
    ],
)
def test_device_and_provider_follow_from_each_other(
    device: str | None, provider: str | None, expected: tuple[str, str]
) -> None:
    accelerator = accelerator_of(device, provider)
    assert (accelerator.device, accelerator.execution_provider) == expected


@pytest.mark.parametrize(("device", "provider"), [("tpu", None), (None, "cudaa")])
def test_an_unknown_accelerator_is_wrong_input(device: str | None, provider: str | None) -> None:
    with pytest.raises(InputError):
        accelerator_of(device, provider)
