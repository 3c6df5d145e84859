"""The request to the worker that records the inputs of each part of a model set, and its reply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from autoopt.target import Target

SET: Final = "set"
"""Name of the file with the inputs of the set itself; a part's file has the part's name."""


@dataclass(frozen=True)
class RecordRequest:
    """The set, its data and the folder to record to."""

    path: str
    """The `model_set.json`."""
    folder: str
    """Receives `set.npz` and `<part>.npz`."""
    data: Mapping[str, object] | None = None
    """Inputs of the set; None to make them up."""
    generated: Mapping[str, object] = field(default_factory=dict)
    """Parameters of the inputs that are made up, see `sources.synthetic`."""
    target: Target = field(default_factory=Target)
    new_tokens: int = 32
    """Tokens to generate after the prompt."""
    start_token: int = 0
    """The prompt where the data have none."""
    user_script: str | None = None
    """The file with the set's pipeline."""


@dataclass(frozen=True)
class Recording:
    """The recorded inputs of each part."""

    items: int
    seconds: Mapping[str, float]
    """Usual time of each part for an item."""
    calls: Mapping[str, int]
    """Inferences of each part for an item."""
    outputs: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Shapes of the outputs of the set's pipeline, if it has one."""
    assumed: tuple[str, ...] = ()
    """Sizes of inputs that were made up, where the models leave them open, in words."""
