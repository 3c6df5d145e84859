"""A chain at one point taken to its candidate: look up each pass run, execute what is missing, record it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autoopt.dag import ChainNode
from autoopt.data.digest import digest_path
from autoopt.engine.work.calls import call
from autoopt.engine.work.claims import claim_or_wait, kept
from autoopt.engine.work.context import RunContext
from autoopt.engine.work.environment import environment
from autoopt.engine.work.keys import pass_run_key
from autoopt.errors import TimeUp
from autoopt.json_codec import to_json
from autoopt.model.candidate import Candidate
from autoopt.outcome import Outcome
from autoopt.spec.data import resolve_path
from autoopt.store import PassRunRecord
from autoopt.target import Accelerator

Configs = Mapping[str, Mapping[str, Any]]


@dataclass
class Progress:
    """How far a chain has come."""

    candidate: Candidate
    done: int = 0
    outcome: Outcome = Outcome.OK
    message: str = ""
    keys: list[str] = field(default_factory=list)
    executed: int = 0
    path: list[tuple[str, Candidate]] = field(default_factory=list)
    """(node id, what it left), in order."""

    def take(self, node: str, record: PassRunRecord) -> None:
        """Go on past one pass run, that of `node`, or stop at it."""
        self.keys.append(record.key)
        if record.outcome.good:
            self.candidate = record.output or self.candidate
            self.path.append((node, self.candidate))
            self.done += 1
        else:
            self.outcome, self.message = record.outcome, f"{record.pass_name}: {record.message}"


def run_chain(ctx: RunContext, nodes: Sequence[ChainNode], configs: Configs) -> Progress:
    """The candidate that `nodes` make with the full configuration of each, or the outcome that ended it."""
    progress = Progress(ctx.source)
    while progress.done < len(nodes) and progress.outcome.good:
        key = _key(ctx, nodes[progress.done], configs, progress.candidate)
        record = ctx.lasting(ctx.store.results.pass_run(key))
        record = record or _of_the_cpu(ctx, nodes[progress.done], configs, progress.candidate)
        if record is None:
            try:
                with ctx.locks.holding(key):
                    if claim_or_wait(ctx, "pass_run", key, ctx.limits.pass_seconds):
                        with kept(ctx, "pass_run", key):
                            _execute(ctx, nodes, configs, progress)
                        continue
            except TimeUp as error:
                progress.outcome, progress.message = Outcome.TIMEOUT, f"{nodes[progress.done].info.name}: {error}"
                break
            record = ctx.store.results.pass_run(key)
            if record is None:
                continue
        ctx.counts.add("pass_runs", executed=False)
        progress.take(nodes[progress.done].id, record)
    return progress


def _key(
    ctx: RunContext, node: ChainNode, configs: Configs, candidate: Candidate, accelerator: Accelerator | None = None
) -> str:
    return pass_run_key(
        node.info,
        configs[node.id],
        candidate,
        accelerator=accelerator or ctx.accelerator,
        calibration=ctx.calibration.digest,
        files=_file_digests(ctx, node, configs[node.id]),
        runtime=ctx.hosts.runtime_of(node.host),
    )


def _file_digests(ctx: RunContext, node: ChainNode, config: Mapping[str, Any]) -> dict[str, str]:
    """Digest of the content of every file or folder that the configuration names, by parameter."""
    paths = {p.name: config.get(p.name) for p in node.info.parameters if p.category in ("path", "data")}
    for parameter in node.info.parameters:
        value = paths.get(parameter.name)
        if parameter.category == "data" and isinstance(value, str):
            paths[parameter.name] = resolve_path(ctx.data_root, value)
    return {name: digest_path(Path(path)) for name, path in paths.items() if path and Path(path).exists()}


def stored_run(ctx: RunContext, node: ChainNode, configs: Configs, candidate: Candidate) -> PassRunRecord | None:
    """What the store holds of one pass on `candidate`; None where it would have to be run."""
    return ctx.lasting(ctx.store.results.pass_run(_key(ctx, node, configs, candidate)))


def _of_the_cpu(ctx: RunContext, node: ChainNode, configs: Configs, candidate: Candidate) -> PassRunRecord | None:
    """The good pass run of the same for the CPU, whose check of the result is the strictest, where the pass takes no
    notice of the target."""
    if node.info.target_bound or ctx.accelerator.execution_provider == Accelerator().execution_provider:
        return None
    record = ctx.store.results.pass_run(_key(ctx, node, configs, candidate, Accelerator()))
    return record if record is not None and record.outcome.good else None


def _execute(ctx: RunContext, nodes: Sequence[ChainNode], configs: Configs, progress: Progress) -> None:
    """Execute the next node, together with the in-memory graph passes that follow it."""
    first = progress.done
    last = first + 1
    while last < len(nodes) and all(_goes_along(n, nodes[first]) for n in nodes[first : last + 1]):
        last += 1
    folder = Path(tempfile.mkdtemp(dir=ctx.scratch))
    try:
        group = nodes[first:last]
        if not _run_group(ctx, group, configs, progress, folder / "group") and len(group) > 1:
            _run_group(ctx, group[:1], configs, progress, folder / "one")  # so that the one to blame is named
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _goes_along(node: ChainNode, first: ChainNode) -> bool:
    """Whether a pass can be run in one load and save with others of its kind, on the same host."""
    return node.info.in_memory and not node.info.session_only and node.host == first.host


def _run_group(ctx: RunContext, group: Sequence[ChainNode], configs: Configs, progress: Progress, folder: Path) -> bool:
    """Run `group` in a worker and record its steps; False where a group of several died and nothing is recorded."""
    ctx.observer.on_pass_start([n.id for n in group])
    payload = {
        "model": ctx.payload(progress.candidate),
        "steps": [{"node": n.id, "pass": n.info.name, "params": dict(configs[n.id])} for n in group],
        "output": str(folder),
        "accelerator": to_json(ctx.accelerator),
        "data": ctx.calibration.config,
        "user_script": ctx.user_script,
        "data_root": ctx.data_root,
        "check": True,
    }
    folder.mkdir(parents=True)
    called = call(
        ctx,
        "autoopt.passes.runner:run",
        payload,
        subject="/".join([progress.candidate.artifact, *(n.info.name for n in group)]),
        limit=ctx.limits.pass_seconds * len(group),
        phase="passes",
        host=ctx.hosts.of(group[0].host),
    )
    if not called.outcome.good:
        if len(group) > 1:
            return False
        step = {"outcome": str(called.outcome), "message": called.message, "seconds": called.seconds}
        _record(ctx, group[0], configs, progress, step)
        return True
    steps = (called.value or {}).get("steps", [])
    for node, step in zip(group, steps, strict=False):
        _record(ctx, node, configs, progress, step)
    return True


def _record(ctx: RunContext, node: ChainNode, configs: Configs, progress: Progress, step: Mapping[str, Any]) -> None:
    outcome = Outcome(step["outcome"])
    before = progress.candidate
    after = None
    if outcome.good:
        artifact = (
            ctx.store.artifacts.put(Path(step["path"]), step.get("digest")) if step.get("path") else before.artifact
        )
        after = Candidate(artifact, dict(step.get("session_options", before.session_options)))
        if after.key == before.key:
            outcome = Outcome.UNCHANGED
    there, asked = ctx.hosts.runtime_of(node.host), configs[node.id]
    named = {p.name: asked[p.name] for p in node.info.parameters if p.category == "path" and p.name in asked}  # as here
    record = PassRunRecord(
        key=_key(ctx, node, configs, before),
        pass_name=node.info.name,
        params={**(step.get("params") or configs[node.id]), **named},
        input=before,
        node=node.id,
        outcome=outcome,
        output=after,
        seconds=float(step.get("seconds", 0.0)),
        message=str(step.get("message", "")),
        environment={**environment(), **({"pass host": dict(there)} if there else {})},
        attempts=tuple(step.get("attempts", ())),
        reports=dict(step.get("reports", {})),
        run=ctx.run,
    )
    ctx.store.results.finish_pass_run(record)
    ctx.counts.add("pass_runs", executed=True)
    ctx.observer.on_pass_end(node.id, outcome, record.seconds, record.message)
    progress.executed += 1
    progress.take(node.id, record)
