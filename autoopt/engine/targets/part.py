"""One target's part of a run over several targets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from autoopt.engine.run.executor import result_of
from autoopt.engine.run.parts import RunPart
from autoopt.spec.targets import TargetSpec


@dataclass
class TargetPart(RunPart):
    """One target's part of a run."""

    @property
    def target(self) -> TargetSpec:
        return self.inputs.spec.all_targets[0]


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
            result_of(future)
