"""Shares of the hypervolume: means over replays, and their table."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

SHOWN: Final = (10, 20, 30, 50, 100)
"""Trials after which shares are shown."""
AREA: Final = 30
"""Trials whose mean share is the area."""


@dataclass(frozen=True)
class FrontFigures:
    """One sampler on one table or family with a number of objectives."""

    table: str
    sampler: str
    objectives: int
    seeds: int
    shares: tuple[float, ...]
    """Mean share after each number of trials in `SHOWN`, as far as the replays went."""
    area: float
    """Mean share over the first `AREA` trials and the replays."""
    error: float
    """Standard error of the area over the seeds; 0 with one."""

    @property
    def key(self) -> tuple[str, str, int]:
        """What these figures are of."""
        return self.table, self.sampler, self.objectives


def figures(table: str, sampler: str, objectives: int, replays: Sequence[Sequence[float]]) -> FrontFigures:
    """Sum up replays: the share after each trial."""
    shown = [number for number in SHOWN if number <= len(replays[0])]
    shares = tuple(statistics.fmean(replay[number - 1] for replay in replays) for number in shown)
    areas = [statistics.fmean(replay[:AREA]) for replay in replays]
    error = statistics.stdev(areas) / math.sqrt(len(areas)) if len(areas) > 1 else 0.0
    return FrontFigures(table, sampler, objectives, len(replays), shares, statistics.fmean(areas), error)


def line(made: FrontFigures) -> str:
    """One row of the table."""
    cells = [f"{share:.3f}" for share in made.shares] + ["-"] * (len(SHOWN) - len(made.shares))
    cells.append(f"{made.area:.3f} ± {made.error:.3f}")
    return f"| {made.table} | {made.sampler} ({made.seeds}) | {' | '.join(cells)} |"


def markdown(all_figures: Sequence[FrontFigures]) -> str:
    """The figures as tables, one for each number of objectives."""
    parts: list[str] = []
    shown = " | ".join(map(str, SHOWN))
    for objectives in sorted({made.objectives for made in all_figures}):
        parts.append(f"### {objectives} objectives\n")
        parts.append(f"| table | sampler (seeds) | {shown} | area ± error |")
        parts.append("|---" * (len(SHOWN) + 3) + "|")
        mine = [made for made in all_figures if made.objectives == objectives]
        parts += [line(made) for made in sorted(mine, key=lambda made: (made.table, -made.area))]
        parts.append("")
    return "\n".join(parts)


def read(path: Path) -> dict[tuple[str, str, int], FrontFigures]:
    """Read figures by their key; none if there is no file."""
    if not path.is_file():
        return {}
    loaded = [FrontFigures(**{**each, "shares": tuple(each["shares"])}) for each in json.loads(path.read_text())]
    return {made.key: made for made in loaded}


def write(path: Path, all_figures: Sequence[FrontFigures]) -> None:
    """Write figures, with their table beside them."""
    rows = [json.dumps(asdict(made), separators=(",", ":")) for made in sorted(all_figures, key=lambda made: made.key)]
    path.write_text("[\n" + ",\n".join(rows) + "\n]\n")
    path.with_suffix(".md").write_text(markdown(all_figures))
