"""The store: results in a database, models in a content-addressed folder.

Read `contracts` first: it says what the store keeps and promises. `records` are the values that go in and come out,
`sql` implements the contracts (`memory`: without a file), `files` holds the artifacts, `maintenance` collects garbage,
verifies and backs up. Importing this package imports no SQL library.
"""

from autoopt.store.contracts import Claim, Restorer, Store
from autoopt.store.opening import open_store, store_exists
from autoopt.store.records import (
    ArtifactRecord,
    ChainRecord,
    EvaluationRecord,
    Lineage,
    ModelRecord,
    PassRunRecord,
    RunRecord,
    SweepRecord,
)

__all__ = [
    "ArtifactRecord",
    "ChainRecord",
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
