"""Flow runs of a nightly sweep over a large zoo, written directly into Prefect's tables.

One flow run for the sweep, one per model below it and one per chain below each model, with task runs, states, artifacts
and events as large as those of autoopt. Import this module only with PREFECT_API_DATABASE_CONNECTION_URL set.
"""

from __future__ import annotations

import random
import uuid
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any

CHUNK = 2000
Row = dict[str, Any]
STAGES = (("SCHEDULED", "Scheduled"), ("PENDING", "Pending"), ("RUNNING", "Running"))
ENDS = (("COMPLETED", "Completed"),) * 17 + (("FAILED", "Failed"),) * 2 + (("CRASHED", "Crashed"),)


class Night:
    """Generated rows by table, kept in memory until `write`."""

    def __init__(self, deployed: dict[str, tuple[uuid.UUID, uuid.UUID]], seed: int = 0) -> None:
        """Prepare an empty night. `deployed` maps flow names to the ids of flow and deployment."""
        self.rows: dict[str, list[Row]] = defaultdict(list)
        self._deployed, self._random = deployed, random.Random(seed)
        self._now = datetime.now(UTC)

    def fill(self, models: int, chains: int, trials: int) -> uuid.UUID:
        """Generate all rows; return the id of the sweep's flow run."""
        sweep = self._flow_run("nightly_sweep", "sweep zoo.yaml", [], None, self._now - timedelta(hours=8), 7 * 3600.0)
        self._artifact(sweep, "sweep", "markdown", "| model | result |\n|---|---|\n" + "| m | same |\n" * models)
        for m in range(models):
            began = self._now - timedelta(hours=7 * (models - m) / models)
            tags = ["autoopt", f"model:model-{m}", "dag:cpu-int8", "target:cpu", f"run:{m:012d}"]
            model = self._flow_run("optimize_model", f"model-{m} · cpu-int8", tags, sweep, began, 25.0)
            self._artifact(model, "progress", "progress", 100.0)
            self._artifact(model, "result", "markdown", "| model | chain | latency | size |\n" * 8)
            for c in range(chains):
                self._chain(model, f"simplify -> fuse{c} -> dynamic", [*tags, f"chain:{m:08d}{c:08d}"], began, trials)
        return sweep

    def _chain(self, model: uuid.UUID, name: str, tags: list[str], began: datetime, trials: int) -> None:
        end = self._random.choice(ENDS)
        run = self._flow_run("tune_chain", name, tags, model, began + timedelta(seconds=2), 20.0, end)
        table = [{"trial": n, "parameters": "per_channel=true", "latency_p50 ratio": 0.5} for n in range(trials)]
        self._artifact(run, "trials", "table", str(table).replace("'", '"'))
        self._artifact(run, "best-so-far", "image", "data:image/svg+xml;base64," + "A" * 3000)
        for n in range(trials):
            self._task_run(run, f"trial {n}", began + timedelta(seconds=3 + n), end)

    def _flow_run(
        self,
        flow: str,
        name: str,
        tags: list[str],
        parent: uuid.UUID | None,
        began: datetime,
        seconds: float,
        end: tuple[str, str] = ENDS[0],
    ) -> uuid.UUID:
        run, (flow_id, deployment) = uuid.uuid4(), self._deployed[flow]
        row = self._run(run, name, tags, began, seconds, end, "flow_run")
        row |= {"flow_id": flow_id, "deployment_id": deployment, "parameters": {"run": name, "round": 1}}
        row["parent_task_run_id"] = self._task_run(parent, name, began, end) if parent else None
        self.rows["flow_run"].append(row)
        for stage, (_, state) in enumerate((*STAGES, end)):
            self._event(run, name, state, began + timedelta(seconds=stage), flow_id, deployment)
        return run

    def _task_run(self, flow_run: uuid.UUID, name: str, began: datetime, end: tuple[str, str]) -> uuid.UUID:
        run = uuid.uuid4()
        row = self._run(run, name, [], began, 1.0, end, "task_run")
        row |= {"flow_run_id": flow_run, "task_key": "trial", "dynamic_key": str(run)}
        self.rows["task_run"].append(row)
        return run

    def _run(
        self,
        run: uuid.UUID,
        name: str,
        tags: list[str],
        began: datetime,
        seconds: float,
        end: tuple[str, str],
        kind: str,
    ) -> Row:
        ended = began + timedelta(seconds=seconds)
        for stage, (kind_of, state) in enumerate((*STAGES, end)):
            state_id = uuid.uuid4()
            when = ended if stage == len(STAGES) else began + timedelta(milliseconds=stage)
            row = {"id": state_id, "type": kind_of, "name": state, "timestamp": when, f"{kind}_id": run}
            self.rows[f"{kind}_state"].append({**row, "message": "2 of 2 trials ok"})
        return {
            "id": run,
            "name": name,
            "tags": tags,
            "state_id": state_id,
            "state_type": end[0],
            "state_name": end[1],
            "state_timestamp": ended,
            "run_count": 1,
            "expected_start_time": began,
            "start_time": began,
            "end_time": ended,
            "total_run_time": timedelta(seconds=seconds),
        }

    def _artifact(self, run: uuid.UUID, key: str, kind: str, data: Any) -> None:
        row = {"id": uuid.uuid4(), "key": key, "type": kind, "data": data, "flow_run_id": run, "description": key}
        self.rows["artifact"].append(row)

    def _event(self, run: uuid.UUID, name: str, state: str, when: datetime, flow: Any, deployment: Any) -> None:
        event, subject = uuid.uuid4(), {"prefect.resource.id": f"prefect.flow-run.{run}", "prefect.resource.name": name}
        related = [
            {"prefect.resource.id": f"prefect.flow.{flow}", "prefect.resource.role": "flow"},
            {"prefect.resource.id": f"prefect.deployment.{deployment}", "prefect.resource.role": "deployment"},
        ]
        self.rows["event"].append(
            {
                "id": event,
                "occurred": when,
                "event": f"prefect.flow-run.{state}",
                "resource_id": subject["prefect.resource.id"],
                "resource": subject,
                "related_resource_ids": [r["prefect.resource.id"] for r in related],
                "related": related,
                "payload": {"intended": {"to": state.upper()}},
                "received": when,
                "recorded": when,
            }
        )
        for resource in ({**subject, "prefect.resource.role": ""}, *related):
            self.rows["event_resource"].append(
                {
                    "id": uuid.uuid4(),
                    "occurred": when,
                    "event_id": event,
                    "resource": resource,
                    "resource_id": resource["prefect.resource.id"],
                    "resource_role": resource["prefect.resource.role"],
                }
            )

    async def write(self) -> int:
        """Write all rows to the database; return how many."""
        import sqlalchemy as sa
        from prefect.server.database import provide_database_interface

        db = provide_database_interface()
        tables: dict[str, Any] = {
            "flow_run": db.FlowRun,
            "flow_run_state": db.FlowRunState,
            "task_run": db.TaskRun,
            "task_run_state": db.TaskRunState,
            "artifact": db.Artifact,
            "event": db.Event,
            "event_resource": db.EventResource,
        }
        latest = {row["key"]: row for row in self.rows["artifact"]}
        async with db.session_context(begin_transaction=True) as session:
            # Rows refer to each other, so foreign keys must not be checked while they are written.
            await session.execute(sa.text("SET session_replication_role = replica"))
            for name, table in tables.items():
                rows = self.rows[name]
                for start in range(0, len(rows), CHUNK):
                    await session.execute(sa.insert(table), rows[start : start + CHUNK])
            collected = [{**row, "id": uuid.uuid4(), "latest_id": row["id"]} for row in latest.values()]
            await session.execute(sa.insert(db.ArtifactCollection), collected)
        async with db.session_context() as session:
            connection = await session.connection(execution_options={"isolation_level": "AUTOCOMMIT"})
            await connection.execute(sa.text("ANALYZE"))
        return sum(map(len, self.rows.values()))
