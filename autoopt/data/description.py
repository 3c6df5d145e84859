"""The description of a data set that a worker gives to processes that do not read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from autoopt.json_codec import JsonValue

VERSION: Final = 7
"""Version of what descriptions hold. Stored ones of another version are made anew."""


@dataclass(frozen=True)
class Column:
    """One input of a data set."""

    dtype: str = ""
    shape: tuple[int, ...] = ()
    finite: bool | None = None
    """False if there are NaN or infinite values; None for arrays of different shapes, which are not looked at."""
    stacked: bool = True
    """True if items lie along axis 0; False for a value that holds for every item, and for complete arrays."""
    open_axes: tuple[int, ...] = ()
    """Axes of `shape` along which the items differ; only complete arrays have any."""
    span: tuple[int, int] | None = None
    """The smallest and the largest value of integers; None for others."""
    range: str = ""
    """The range of numbers in words; empty for others."""
    first: str = ""
    """The beginning of the first item."""
    constant: JsonValue = None
    """The value of one item, in nested lists, if every item has the same; None if it changes or cannot be known."""


@dataclass(frozen=True)
class DataDescription:
    """The items, columns and labels of a data set."""

    items: int = 0
    columns: Mapping[str, Column] = field(default_factory=dict)
    labels: bool = False
    label_kind: str | None = None
    """`token` (the next token at each position of a text), `class` (an integer or text, a one-hot row, or ids for
    several places), `value` (one float) or `tensor` (several floats, or bytes as images have them); None without
    labels."""
    first_label: str = ""
    """The beginning of the first label."""
    label_text: str | None = None
    """A label that is text and not a number."""
    class_names: tuple[str, ...] = ()
    """The different labels in sorted order if they are texts, unless there are very many."""
    classes: int = 0
    """Number of different classes, if labels are classes of items or of places in them, such as frames and pixels."""
    smallest_class: int = 0
    """Number of labels of the rarest of these."""
    labelled: int = 0
    """Number of labels of all of these."""
    broken_labels: int = 0
    """Number of items whose label is NaN or infinite."""
    loader: str = ""
    """The component that loaded the data, such as `images`."""
    reading: str = ""
    """The assumptions under which files became the items, in words."""
    state: Mapping[str, str] = field(default_factory=dict)
    """Output of the model -> input that takes it with the next item, as the items show; empty if they do not."""
    reset_every: int | None = None
    """Items after which such state starts again from zero; None: never."""
    starts: tuple[int, ...] = ()
    """Items that begin a sequence, with the state that the data hold for them; empty if zeros begin all of them."""
    made_up: bool = False
    """True if the items were made from the model, so that their values and sizes say nothing about its use."""
    assumed: tuple[str, ...] = ()
    """Sizes of such items that the model leaves open, in words: `images of 320x320 (imgsz in the model's metadata)`."""

    @property
    def state_fields(self) -> dict[str, JsonValue]:
        """The fields of a data configuration with which each model gets its own state; empty without state."""
        if not self.state:
            return {}
        fields: dict[str, JsonValue] = {"state": dict(self.state)}
        if self.reset_every is not None:
            fields["reset_every"] = self.reset_every
        if self.starts:
            fields["starts"] = list(self.starts)
        return fields
