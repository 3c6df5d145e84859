"""Passes made of passes: a sequence, and a sequence repeated until nothing changes."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, TypeAlias

from autoopt.errors import InputError
from autoopt.json_codec import JsonObject
from autoopt.outcome import Outcome
from autoopt.passes.base import Pass, Refused, Retry, Touch
from autoopt.passes.base.build import build_pass, full_config
from autoopt.passes.base.lifecycle import run_on_proto
from autoopt.passes.verification.fingerprint import fingerprint
from autoopt.registry import Tolerance, registry

if TYPE_CHECKING:
    import numpy as np
    from onnx import ModelProto

_TOLERANCES: Final[tuple[Tolerance, ...]] = ("lossless", "equal", "lossy")
"""From the strictest to the loosest."""


@dataclass(frozen=True)
class PassCall:
    """The name of a pass with parameters. `get_pass` returns one; a `Sequence` takes them."""

    name: str
    params: JsonObject = field(default_factory=dict)


Item: TypeAlias = "str | PassCall | Pass"


class Sequence(Pass):
    """Runs passes in order, in one load: `Sequence("name_fix", get_pass("simplify", engine="onnxsim"))`.

    Passes that an item requires run before it if they are not in the sequence. To register one, derive a class and set
    `items`. The sequence ends at the first pass that refuses, fails or asks for other parameters. What any item
    declares (tolerance, touches) holds for the whole sequence.
    """

    items: ClassVar[tuple[Item, ...]] = ()

    def __init__(self, *items: Item, **params: object) -> None:
        super().__init__(**params)
        self._items = items or self.items
        for item in self._items:
            if not isinstance(item, (str, PassCall, Pass)):
                reason = f"a Sequence takes passes or their names, not a {type(item).__name__}"
                raise InputError(reason, remedy="Sequence(one, two), or Sequence(*passes) for a list")

    def initialize(self) -> None:
        """Build the passes and take over the loosest of their tolerances."""
        self._ran: list[Pass] = []
        self._pinned: dict[str, np.ndarray] = {}
        self._passes = self._build_all()
        touches: dict[Touch, None] = {}
        loosest = 0
        for pass_ in self._passes:
            if isinstance(pass_, Sequence):
                # Its declarations are known once it is initialized; running it initializes it again.
                pass_.context = self.context
                pass_.initialize()
            touches.update(dict.fromkeys(pass_.touches))
            loosest = max(loosest, _TOLERANCES.index(pass_.tolerance))
        self.tolerance = _TOLERANCES[loosest]  # type: ignore[misc]  # of this run, not of the class
        self.touches = tuple(touches)  # type: ignore[misc]  # of this run, not of the class

    def run(self, model: ModelProto) -> ModelProto | Retry | None:
        inputs = {value.name for value in model.graph.input}
        for pass_ in self._passes:
            pinned = pass_.pinned(model)
            result = run_on_proto(pass_, model, self.context)
            if not result.outcome.good:
                raise Refused(f"{type(pass_).__name__} {result.outcome}: {result.message}")
            if result.outcome is Outcome.OK:
                model = result.model
                # A copy, because the same pass may run again and then maps other inputs.
                self._ran.append(copy(pass_))
                self._pinned.update({name: value for name, value in pinned.items() if name in inputs})
        return model

    def feeds(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray] | None:
        """Map inputs as the passes that changed the model do, one after the other."""
        mapped: dict[str, np.ndarray] | None = feeds
        for pass_ in self._ran:
            if mapped is not None:
                mapped = pass_.feeds(mapped)
        return mapped

    def pinned(self, model: ModelProto) -> dict[str, np.ndarray]:
        """The values that any of the passes has pinned."""
        return self._pinned

    def _build_all(self) -> list[Pass]:
        """Build the passes, each after those that it requires and that are not in the sequence before it."""
        passes: list[Pass] = []
        present: set[str] = set()

        def add(item: Item) -> None:
            pass_ = self._build(item)
            name = type(pass_).__name__
            if isinstance(item, str):
                name = registry().resolve(item)
            elif isinstance(item, PassCall):
                name = item.name
            present.add(name)
            for required in pass_.requires:
                if registry().resolve(required) not in present:
                    add(required)
            passes.append(pass_)

        for item in self._items:
            add(item)
        return passes

    def _build(self, item: Item) -> Pass:
        if isinstance(item, Pass):
            return item
        call = item
        if isinstance(call, str):
            call = PassCall(call)
        accelerator, objects = None, None
        if hasattr(self, "context"):
            accelerator, objects = self.context.accelerator, self.context.objects
        info = registry().info(call.name, accelerator)
        if info.missing:
            raise Refused(info.missing)
        return build_pass(info, full_config(info, call.params), objects)


class Repeat(Sequence):
    """Runs a sequence until nothing changes, for at most `limit` rounds."""

    limit: Annotated[int, "maximum number of rounds"] = 10

    def run(self, model: ModelProto) -> ModelProto | Retry | None:
        before = fingerprint(model, self.touches)
        for _ in range(self.limit):
            model = super().run(model)
            after = fingerprint(model, self.touches)
            if after == before:
                break
            before = after
        return model


class SequencePass(Repeat):
    """Runs other passes by name, in order, as one pass; optionally until nothing changes."""

    passes: Annotated[list[str], "names of the passes, in order; they run with their defaults"]
    until_unchanged: Annotated[bool, "repeat until nothing changes"] = False

    def initialize(self) -> None:
        self._items = tuple(self.passes)
        if not self.until_unchanged:
            self.limit = 1
        super().initialize()
