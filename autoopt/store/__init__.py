"""The store: results in a database, models in a content-addressed folder. Light to import."""

from autoopt.store.base import Claim, Restorer, Store
from autoopt.store.records import (
    ArtifactRecord,
    ChainRecord,
    EnvironmentRecord,
    EvaluationRecord,
    EventRecord,
    Lineage,
    LineageStep,
    ModelRecord,
    PassRunRecord,
    RunRecord,
    SweepRecord,
    TrialRecord,
)

__all__ = [
    "ArtifactRecord",
    "ChainRecord",
    "Claim",
    "EnvironmentRecord",
    "EvaluationRecord",
    "EventRecord",
    "Lineage",
    "LineageStep",
    "ModelRecord",
    "PassRunRecord",
    "Restorer",
    "RunRecord",
    "Store",
    "SweepRecord",
    "TrialRecord",
]
