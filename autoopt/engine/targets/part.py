"""One target's part of a run over several targets."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from autoopt.engine.inputs.request import RunRequest
from autoopt.engine.inputs.resolve import ResolvedInputs
from autoopt.engine.run.session import Session
from autoopt.results import RunResult


@dataclass
class TargetPart:
    """One target's part of a run."""

    name: str
    request: RunRequest
    inputs: ResolvedInputs
    session: Session | None = None
    result: RunResult | None = None

    @property
    def machine(self) -> tuple[str, ...]:
        """What tells its machine from others."""
        return self.inputs.spec.all_targets[0].machine

    @property
    def open_session(self) -> Session:
        assert self.session is not None, "its search has begun"
        return self.session


def by_machine(parts: list[TargetPart], work: Callable[[TargetPart], None]) -> None:
    """Do the work for each part: one after the other for each machine, machines side by side."""
    machines: dict[tuple[str, ...], list[TargetPart]] = {}
    for part in parts:
        machines.setdefault(part.machine, []).append(part)

    def there(mine: list[TargetPart]) -> None:
        for part in mine:
            work(part)

    if len(machines) == 1:
        there(parts)
        return
    with ThreadPoolExecutor(len(machines), thread_name_prefix="machine") as threads:
        for done in [threads.submit(there, mine) for mine in machines.values()]:
            done.result()
