"""Required earlier passes: found in the chain, or inserted once, transitively."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from autoopt.dag.compiler.pruning import Facts, check_pass
from autoopt.errors import InputError
from autoopt.registry import REQUIRED, PassInfo

Infos: TypeAlias = Callable[[str], PassInfo]
"""Pass name or alias -> what is known of it; raises InputError for an unknown one."""


@dataclass
class Requirements:
    """Resolves required and conflicting passes; remembers what it looked up."""

    infos: Infos
    facts: Facts
    _known: dict[str, PassInfo | str] = field(default_factory=dict)

    def info(self, name: str) -> PassInfo | str:
        """What is known of a pass, or why nothing is."""
        if name not in self._known:
            try:
                self._known[name] = self.infos(name)
            except InputError as error:
                self._known[name] = str(error)
        return self._known[name]

    def name(self, name: str) -> str:
        """The registered name behind an alias; unknown names as they are."""
        info = self.info(name)
        return name if isinstance(info, str) else info.name

    def missing(self, info: PassInfo, present: frozenset[str]) -> tuple[tuple[PassInfo, ...], str]:
        """The passes to insert before `info`, first to run first, and "", or nothing and why they cannot be inserted.

        `present`: names of the passes that ran earlier.
        """
        inserted: dict[str, PassInfo] = {}
        problem = self._collect(info, present, inserted, (info.name,))
        return ((), problem) if problem else (tuple(inserted.values()), "")

    def _collect(
        self, info: PassInfo, present: frozenset[str], inserted: dict[str, PassInfo], above: tuple[str, ...]
    ) -> str:
        for wanted in info.requires:
            needed = self.info(wanted)
            if isinstance(needed, str):
                return f"{info.name} requires {wanted}, which cannot be inserted: {needed}"
            if needed.name in present or needed.name in inserted:
                continue
            if needed.name in above:
                return f"{' -> '.join([*above, needed.name])} require each other in a cycle"
            problem = self._collect(needed, present, inserted, (*above, needed.name))
            if problem:
                return problem
            problem = self._insertable(needed, present | set(inserted))
            if problem:
                return f"{info.name} requires {needed.name}, which cannot be inserted: {problem}"
            inserted[needed.name] = needed
        return ""

    def _insertable(self, info: PassInfo, present: frozenset[str]) -> str:
        reason = check_pass(info, self.facts)
        if reason is not None:
            return reason.text
        required = [p.name for p in info.parameters if p.default is REQUIRED]
        if required:
            return f"it needs parameter {required[0]!r}"
        clash = [c for c in info.conflicts if c in present]
        return f"it conflicts with {clash[0]}" if clash else ""

    def resolved(self) -> dict[str, Any]:
        """Every required or conflicting pass that was looked up: its version and what it requires; or why not."""
        known = {n: i if isinstance(i, str) else [i.name, i.version, *i.requires] for n, i in self._known.items()}
        return dict(sorted(known.items()))

    def relevant(self, info: PassInfo) -> frozenset[str]:
        """Names of all passes whose earlier presence matters to `info`, through its requirements too."""
        found: set[str] = set()
        done: set[str] = set()
        todo = [info]
        while todo:
            at = todo.pop()
            found.update(at.conflicts)
            for wanted in at.requires:
                needed = self.info(wanted)
                found.add(self.name(wanted))
                if isinstance(needed, PassInfo) and needed.name not in done:
                    done.add(needed.name)
                    todo.append(needed)
        return frozenset(found)
