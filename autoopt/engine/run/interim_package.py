"""The package of the best model so far, which a run keeps in its output folder during the search."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

from autoopt.engine.run.export import export
from autoopt.engine.run.output_folder import shown_folder
from autoopt.engine.run.package import Package
from autoopt.engine.work.context import RunContext
from autoopt.errors import InputError
from autoopt.report.words.formatting import short
from autoopt.report.words.verdict import gains
from autoopt.results import ModelResult, RunResult
from autoopt.tuning import RACE
from autoopt.workers.gate import notices_to

Writer: TypeAlias = Callable[[RunContext, RunResult, ModelResult, Path], None]
"""Writes the best model of an interim result into a folder."""


def write_model(ctx: RunContext, result: RunResult, model: ModelResult, out: Path) -> None:
    """Write the package of one model of an interim result."""
    package = replace(Package(ctx.store.runs.get(ctx.run), result, model), scripts_may_run=True)
    export(ctx.store, package, out, ctx.resources.pool)


@dataclass
class InterimPackage:
    """The best model so far, as files."""

    out: Path | None = None
    """The output folder; None to write nothing before the end."""
    write: Writer = write_model
    content: str = "the best model so far; a better one will replace it"
    """A description of the folder's content, for the first note about it."""
    _candidate: str = field(default="", init=False)
    """Key of the candidate that this process wrote last."""
    _named_lossy: bool = field(default=False, init=False)
    _next_time: float = field(default=0.0, init=False)
    """Time on the attempt's clock from which a better candidate is written."""

    def update(self, ctx: RunContext, result: RunResult, *, always: bool = False) -> None:
        """Write the best model of an interim result, if it is another one.

        Without data, a lossy model is only named, once. A folder that cannot be written does not stop the search. With
        `always`, write even if that takes a noticeable share of the time.
        """
        model, clock = result.better_model, ctx.attempt.clock
        if self.out is None:
            return
        if model is None:
            self._name_lossy(ctx, result, self.out)
            return
        if model.candidate.key == self._candidate or (clock() < self._next_time and not always):
            return
        began = time.thread_time()
        is_first = not self._candidate
        try:
            with notices_to(lambda _: None):  # it waits for this run's own measurements
                self._write(ctx, result, model, self.out)
        except InputError as error:
            ctx.attempt.observer.on_note(f"the best model so far was not written: {error}")
        else:
            if is_first:
                ctx.attempt.observer.on_note(f"{shown_folder(self.out)}/ has {self.content}")
        # Waiting for a measurement to end, which is not in the CPU time, does no harm.
        self._next_time = clock() + (time.thread_time() - began) / RACE.writing_share

    def _name_lossy(self, ctx: RunContext, result: RunResult, out: Path) -> None:
        if result.best_lossy is not None and not self._named_lossy:
            self._named_lossy = True
            ctx.attempt.observer.on_note(f"{shown_folder(out)}/ gets lossless models only; {lossy_note(result)}")

    def finish(self, ctx: RunContext, result: RunResult, out: Path) -> bool:
        """Write the best model of a cancelled run to a folder and say so; false if none is better than the source.

        Without data, the best lossy model is only named.
        """
        if result.best_lossy is not None:
            ctx.attempt.observer.on_note(lossy_note(result))
        model = result.better_model
        if model is None:
            return False
        if out != self.out or model.candidate.key != self._candidate:
            self._write(ctx, result, model, out)
        ctx.attempt.observer.on_note(
            f"wrote the best model so far to {shown_folder(out)}/: {', '.join(gains(result, model))}"
        )
        return True

    def _write(self, ctx: RunContext, result: RunResult, model: ModelResult, out: Path) -> None:
        self.write(ctx, result, model, out)
        self._candidate = model.candidate.key


def lossy_note(result: RunResult, title: str = "best lossy model so far") -> str:
    """The gain of the best lossy model of a run without data, and the command that writes it."""
    model = result.best_lossy
    assert model is not None
    assert model.trial is not None
    command = f"autoopt export {short(result.run)} {model.trial}"
    return f"{title}, unverified: {', '.join(gains(result, model))}; get it with: {command}"
