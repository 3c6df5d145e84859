"""The store: results in a database, models in a content-addressed folder.

Read `store` first: it says what the store promises. `records` are the values that go in and come out, `sql` holds
the rows, `files` the artifacts, `maintenance` collects garbage, verifies and backs up. Importing this package imports
no SQL library.
"""

from autoopt.store.records import (
    ArtifactRecord,
    Claim,
    EvaluationRecord,
    Lineage,
    ModelRecord,
    PassRunRecord,
    Restorer,
    RunRecord,
    SweepRecord,
)
from autoopt.store.store import Store, open_store, store_exists

__all__ = [
    "ArtifactRecord",
    "Claim",
    "EvaluationRecord",
    "Lineage",
    "ModelRecord",
    "PassRunRecord",
    "Restorer",
    "RunRecord",
    "Store",
    "SweepRecord",
    "open_store",
    "store_exists",
]
