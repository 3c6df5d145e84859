"""Passes made of passes: a sequence, and a sequence repeated until nothing changes. Both are passes themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeAlias

from autoopt.outcome import Outcome
from autoopt.passes.base import Pass, Refused, Retry, Touch
from autoopt.passes.base.build import build_pass
from autoopt.passes.base.config import full_config
from autoopt.passes.base.lifecycle import run_on_proto
from autoopt.passes.verification.fingerprint import fingerprint
from autoopt.registry import Tolerance, registry

if TYPE_CHECKING:
    from onnx import ModelProto


_LOOSER: tuple[Tolerance, ...] = ("lossless", "equal", "lossy")


@dataclass(frozen=True)
class PassCall:
    """A pass by name with parameters, not yet made: what `get_pass` gives and a `Sequence` takes."""

    name: str
    params: Mapping[str, Any] = field(default_factory=dict)


Item: TypeAlias = "str | PassCall | Pass"


class Sequence(Pass):
    """Runs passes in order, in one load: `Sequence("name_fix", get_pass("simplify", engine="onnxsim"))`.

    To register one, derive a class and set `items`. It ends as soon as one of them refuses, fails or asks for other
    parameters; what an item declares (tolerance, touches) holds for the whole.
    """

    family: ClassVar[str] = "composed"
    items: ClassVar[tuple[Item, ...]] = ()

    def __init__(self, *items: Item, **params: Any) -> None:
        super().__init__(**params)
        self._chosen = items or self.items

    def initialize(self) -> None:
        """Make the passes; the loosest of their tolerances is this run's."""
        self._passes = [self._made(item) for item in self._chosen]
        touched: dict[Touch, None] = {}
        for one in self._passes:
            if isinstance(one, Sequence):
                one.context = self.context
                one.initialize()  # to know what it declares; once more when it runs
            touched.update(dict.fromkeys(one.touches))
        looser = max((_LOOSER.index(one.tolerance) for one in self._passes), default=0)
        self.tolerance, self.touches = _LOOSER[looser], tuple(touched)  # type: ignore[misc]  # of this run

    def run(self, model: ModelProto) -> ModelProto | Retry | None:
        for one in self._passes:
            ended = run_on_proto(one, model, self.context)
            if not ended.outcome.good:
                raise Refused(f"{type(one).__name__} {ended.outcome}: {ended.message}")
            if ended.outcome is Outcome.OK and not one.analysis:
                model = ended.model
        return model

    def _made(self, item: Item) -> Pass:
        if isinstance(item, Pass):
            return item
        call = item if isinstance(item, PassCall) else PassCall(item)
        context = getattr(self, "context", None)
        info = registry().info(call.name, context.accelerator if context else None)
        if info.missing:
            raise Refused(info.missing)
        return build_pass(info, full_config(info, call.params), context.objects if context else None)


class Repeat(Sequence):
    """Runs a sequence again and again until nothing changes, or `limit` rounds are done."""

    limit: Annotated[int, "most rounds"] = 10

    def run(self, model: ModelProto) -> ModelProto | Retry | None:
        before = fingerprint(model, self.touches)
        for _ in range(self.limit):
            copy = type(model)()
            copy.CopyFrom(model)
            made = super().run(copy)
            assert made is not None
            after = fingerprint(made, self.touches)
            model = made
            if after == before:
                break
            before = after
        return model


class SequencePass(Repeat):
    """Runs other passes, named in order, as one pass; repeated until nothing changes where asked."""

    aliases = ("apply_ir_pass",)

    passes: Annotated[list[str], "names of passes, in order; they run with their defaults"]
    until_unchanged: Annotated[bool, "repeat until nothing changes"] = False

    def initialize(self) -> None:
        self._chosen = tuple(self.passes)
        if not self.until_unchanged:
            self.limit = 1
        super().initialize()
