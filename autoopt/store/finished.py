"""The finished trials of a run, as reports take them."""

from __future__ import annotations

from autoopt.results import Trial
from autoopt.store.contracts import Store


def finished_trials(store: Store, run: str, chain: str | None = None) -> list[Trial]:
    """Return the finished trials of a run, or of one of its chains, by number, with the chains' readable names."""
    names = {record.id: record.name for record in store.runs.chains(run)}
    rows = [row for row in store.trials.all(run) if row.status == "done" and chain in (None, row.chain)]
    return [Trial(row.number, names.get(row.chain, row.chain), row.result) for row in rows]
