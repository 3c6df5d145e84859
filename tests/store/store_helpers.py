"""Small results to put into a store."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from autoopt.metrics import Estimate
from autoopt.model.candidate import Candidate, digest_json
from autoopt.outcome import Outcome
from autoopt.store import EvaluationRecord, ModelRecord, PassRunRecord, RunRecord, Store

CHAIN = digest_json("chain")
ENVIRONMENT = {"python": "3.11", "libraries": {"onnx": "1.2.3"}}


def key(*parts: Any) -> str:
    return digest_json(list(parts))


def write_model(folder: Path, content: bytes, **external: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(content)
    for name, data in external.items():
        (folder / f"{name}.data").write_bytes(data)
    return folder


def put(store: Store, content: bytes, **external: bytes) -> str:
    folder = store.home / "made" / hashlib.sha256(content).hexdigest()[:16]
    return store.artifacts.put(write_model(folder, content, **external), consume=True)


def pass_run(given: str, made: str | None, name: str = "simplify", **changes: Any) -> PassRunRecord:
    fields: dict[str, Any] = {
        "key": key(name, given, made),
        "pass_name": name,
        "params": {"level": 2},
        "input": Candidate(given),
        "outcome": Outcome.OK if made else Outcome.FAILED,
        "output": Candidate(made) if made else None,
        "seconds": 0.5,
        "environment": ENVIRONMENT,
    }
    return PassRunRecord(**{**fields, **changes})


def evaluation(artifact: str, value: float = 3.0, **changes: Any) -> EvaluationRecord:
    fields: dict[str, Any] = {
        "key": key("evaluation", artifact),
        "candidate": Candidate(artifact),
        "meter": "size",
        "outcome": Outcome.OK,
        "metrics": {"size": Estimate.exact(value)},
        "source_metrics": {"size": Estimate.exact(2 * value)},
        "ratios": {"size": Estimate(0.5, 0.4, 0.6)},
        "environment": ENVIRONMENT,
    }
    return EvaluationRecord(**{**fields, **changes})


def start_run(store: Store, content: bytes = b"source", **changes: Any) -> RunRecord:
    source = put(store, content)
    store.models.add(ModelRecord(source, "net"))
    fields: dict[str, Any] = {"id": "", "name": "net cpu", "identity": key("identity", source), "model": source}
    return store.runs.create(RunRecord(**{**fields, **changes}))
