"""A store as other owners of claims use it: other processes, or threads that exclude each other."""

from __future__ import annotations

import copy

from autoopt.store import Store
from autoopt.store.sql.claims import SqlClaims
from autoopt.store.sql.history import SqlSweeps
from autoopt.store.sql.results import SqlResults
from autoopt.store.sql.runs import SqlRuns
from autoopt.store.sql.trials import SqlTrials


def by(store: Store, owner: str) -> Store:
    """The same store, whose claims belong to this owner."""
    other = copy.copy(store)
    other.owner = owner
    other.results = SqlResults(other.database, owner)
    other.claims = SqlClaims(other.database, owner)
    other.runs = SqlRuns(other.database, owner)
    other.sweeps = SqlSweeps(other.database, owner)
    other.trials = SqlTrials(other.database, owner)
    return other
