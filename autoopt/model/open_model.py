"""The type of an open model that programs get: onnxruntime, whose session it is, has no types of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    import numpy as np

    Array: TypeAlias = np.ndarray[Any, Any]


class Argument(Protocol):
    """An input or output of a model: onnxruntime's `NodeArg`."""

    @property
    def name(self) -> str: ...

    @property
    def type(self) -> str:
        """Such as `tensor(float)`."""

    @property
    def shape(self) -> Sequence[int | str | None]:
        """Sizes; a text or None where it is free."""


class OpenModel(Protocol):
    """An `onnxruntime.InferenceSession`, or the sessions of several models that belong together.

    These are the methods that both have. That of a single model is onnxruntime's own and has all others, too.
    """

    def run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Array], /) -> list[Array]:
        """Run the model on arrays by the names of its inputs; returns the named outputs, or all for None."""

    def get_inputs(self) -> Sequence[Argument]:
        """The inputs of the model."""

    def get_outputs(self) -> Sequence[Argument]:
        """The outputs of the model."""

    def get_providers(self) -> list[str]:
        """The execution providers, the first one preferred."""
