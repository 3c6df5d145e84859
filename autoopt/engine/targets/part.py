"""One target's part of a run over several targets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from autoopt.engine.inputs.request import RunRequest
from autoopt.engine.inputs.resolve import ResolvedInputs
from autoopt.engine.run.session import Session
from autoopt.results import RunResult
from autoopt.spec.targets import TargetSpec


@dataclass
class TargetPart:
    """One target's part of a run: a run of its own with its plan and its trials."""

    name: str
    request: RunRequest
    inputs: ResolvedInputs
    session: Session | None = None
    result: RunResult | None = None

    @property
    def target(self) -> TargetSpec:
        return self.inputs.spec.all_targets[0]

    @property
    def open_session(self) -> Session:
        assert self.session is not None, "the search of this part has not started"
        return self.session


def run_by_machine(parts: Sequence[TargetPart], work: Callable[[TargetPart], None]) -> None:
    """Call `work` for each part: in sequence for parts on the same machine, in parallel for different machines."""
    machines: dict[tuple[str, ...], list[TargetPart]] = {}
    for part in parts:
        machines.setdefault(part.target.machine, []).append(part)

    def run_in_sequence(parts_of_machine: list[TargetPart]) -> None:
        for part in parts_of_machine:
            work(part)

    if len(machines) == 1:
        # Stay in this thread: Ctrl-C and the context of a Prefect flow reach only that one.
        run_in_sequence(list(parts))
        return
    with ThreadPoolExecutor(len(machines), thread_name_prefix="machine") as threads:
        for future in [threads.submit(run_in_sequence, group) for group in machines.values()]:
            future.result()
