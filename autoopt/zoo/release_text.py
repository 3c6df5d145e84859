"""Releases as text: a line for a new one, a table of all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autoopt.report.table import Table
from autoopt.report.words.figures import chain_text
from autoopt.report.words.formatting import day_text, short
from autoopt.report.words.verdict import gains
from autoopt.results.release import Release


@dataclass(frozen=True)
class ReleaseRow:
    """A release and its state."""

    release: Release
    current: bool
    taken_back_by: str = ""
    """User and host that rolled it back last; empty if nobody has."""


def release_text(release: Release) -> str:
    """`production/cnn 3: 2.3x faster, accuracy unchanged (fold -> static), published to models/cnn`."""
    result, chain = release.entry.result, release.model.short_chain
    text = f"{release.name}: {chain}"
    if result is not None:
        text = f"{release.name}: {', '.join(gains(result, release.model)) or 'no figures'} ({chain})"
    if release.places:
        text += f", published to {', '.join(release.places)}"
    return text


def releases_table(rows: Sequence[ReleaseRow]) -> Table:
    """One row for each release, newest first, models together."""
    cells = []
    for row in rows:
        release = row.release
        state = "earlier"
        if row.current:
            state = "released"
        elif row.taken_back_by:
            state = f"rolled back by {row.taken_back_by}"
        answer = chain_text(release.model)
        if release.entry.result is not None:
            answer = ", ".join(gains(release.entry.result, release.model)) or answer
        run = short(release.entry.run)
        if release.trial is not None:
            run += f" trial {release.trial}"
        places = ", ".join(release.places) or "-"
        model = f"{release.zoo}/{release.entry.name}"
        cells.append((model, str(release.number), state, day_text(release.time), release.by, answer, run, places))
    return Table(("model", "release", "state", "promoted", "by", "result", "run", "places"), tuple(cells))
