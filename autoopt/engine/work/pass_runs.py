"""Take a chain at one point to its candidate: look up each pass run, execute missing ones, record them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from autoopt.dag.compiler.chain import ChainNode
from autoopt.data.config import resolve_path
from autoopt.data.digest import digest_path
from autoopt.engine.work.calls import CallTerms, is_setup_failure, run_pass
from autoopt.engine.work.claims import claim_or_wait, released_on_timeout
from autoopt.engine.work.context import RunContext
from autoopt.engine.work.environment import environment
from autoopt.engine.work.keys import Implementation, PassRunInput, pass_run_key
from autoopt.errors import TimeUp
from autoopt.json_codec import JsonValue, to_json
from autoopt.model.candidate import Candidate, digest_json
from autoopt.outcome import Outcome
from autoopt.passes.request import ModelFile, PassRequest, PassStep, StepReply
from autoopt.store import PassRunRecord
from autoopt.store.records import IMPLEMENTATION, TRANSIENT
from autoopt.target import Accelerator
from autoopt.workers.quarantine import SHORT, Subject

Configs = Mapping[str, Mapping[str, JsonValue]]
"""Full configuration of each node, by node id."""


@dataclass
class ChainProgress:
    """The state of a chain whose passes run one after the other."""

    candidate: Candidate
    completed: int = 0
    """Number of nodes that are done."""
    outcome: Outcome = Outcome.OK
    message: str = ""
    transient: bool = False
    """True for a failure whose cause may lie outside the passes."""
    keys: list[str] = field(default_factory=list)
    """Keys of the pass runs."""
    executed: int = 0
    """Number of pass runs that were executed rather than looked up."""
    path: list[tuple[str, Candidate]] = field(default_factory=list)
    """Node id and the candidate it left, in order."""
    changing: list[str] = field(default_factory=list)
    """Ids of the nodes that changed the candidate."""
    reports: dict[str, JsonValue] = field(default_factory=dict)
    """Reports of analyses on the candidate, by pass name."""

    def add(self, node: str, record: PassRunRecord) -> None:
        """Advance past the pass run of a node, or stop at its failure."""
        self.keys.append(record.key)
        if record.outcome.good:
            self.candidate = record.output or self.candidate
            self.path.append((node, self.candidate))
            if record.outcome is Outcome.UNCHANGED:
                self.reports.update(record.reports)
            else:
                self.changing.append(node)
                self.reports = {}
            self.completed += 1
        else:
            self.outcome = record.outcome
            self.message = f"{record.pass_name}: {record.message}"
            self.transient = record.transient


def run_chain(ctx: RunContext, nodes: Sequence[ChainNode], configs: Configs) -> ChainProgress:
    """Run the nodes on the source model, up to the first failure."""
    progress = ChainProgress(ctx.problem.source)
    while progress.completed < len(nodes) and progress.outcome.good:
        node = nodes[progress.completed]
        try:
            record = _look_up_or_execute(ctx, nodes, configs, progress)
        except TimeUp as error:
            progress.outcome = Outcome.TIMEOUT
            progress.message = f"{node.info.name}: {error}"
            break
        if record is not None:
            ctx.attempt.counts.add_reused("pass_runs")
            progress.add(node.id, record)
    return progress


def stored_pass_run(ctx: RunContext, node: ChainNode, configs: Configs, candidate: Candidate) -> PassRunRecord | None:
    """The stored run of a node on `candidate`; None if it has to be executed."""
    return ctx.attempt.reusable(ctx.store.results.pass_run(_key(ctx, node, configs, candidate)))


def _look_up_or_execute(
    ctx: RunContext, nodes: Sequence[ChainNode], configs: Configs, progress: ChainProgress
) -> PassRunRecord | None:
    """The stored run of the next node, or None after executing it, which advances `progress`."""
    node = nodes[progress.completed]
    key = _key(ctx, node, configs, progress.candidate)
    stored = ctx.store.results.pass_run(key)
    record = ctx.attempt.reusable(stored)
    redo = stored is not None and record is None
    if record is None:
        record = _cpu_pass_run(ctx, node, configs, progress.candidate)
    if record is not None:
        return record
    with ctx.resources.locks.holding(key):
        if claim_or_wait(ctx.store, ctx.attempt, "pass_run", key, ctx.problem.limits.pass_seconds, redo=redo):
            with released_on_timeout(ctx.store, "pass_run", key):
                _execute(ctx, nodes, configs, progress)
            return None
    return ctx.store.results.pass_run(key)


def _key(
    ctx: RunContext, node: ChainNode, configs: Configs, candidate: Candidate, accelerator: Accelerator | None = None
) -> str:
    config = configs[node.id]
    work = PassRunInput(
        candidate=candidate,
        accelerator=accelerator or ctx.problem.accelerator,
        calibration=ctx.problem.data.calibration.digest,
        files=_file_digests(ctx, node, config),
        runtime=ctx.resources.hosts.runtime_of(node.host),
    )
    return pass_run_key(node.info, config, work)


def _file_digests(ctx: RunContext, node: ChainNode, config: Mapping[str, JsonValue]) -> dict[str, str]:
    """Digests of the files and folders that the configuration names, by parameter."""
    digests: dict[str, str] = {}
    for parameter in node.info.parameters:
        path = config.get(parameter.name)
        if not path or not isinstance(path, str) or parameter.category not in ("path", "data"):
            continue
        if parameter.category == "data":
            path = resolve_path(ctx.problem.data_root, path)
        if Path(path).exists():
            digests[parameter.name] = digest_path(Path(path))
    return digests


def _cpu_pass_run(ctx: RunContext, node: ChainNode, configs: Configs, candidate: Candidate) -> PassRunRecord | None:
    """The good run of the same pass for the CPU, if the pass does not depend on the target.

    The CPU's check of the result is the strictest, so its result holds for every target.
    """
    cpu = Accelerator()
    if node.info.target_bound or ctx.problem.accelerator.execution_provider == cpu.execution_provider:
        return None
    record = ctx.store.results.pass_run(_key(ctx, node, configs, candidate, cpu))
    if record is None or not record.outcome.good:
        return None
    return record


def _execute(ctx: RunContext, nodes: Sequence[ChainNode], configs: Configs, progress: ChainProgress) -> None:
    """Execute the next node, together with the in-memory graph passes that follow it."""
    group = _group(nodes[progress.completed :])
    folder = Path(tempfile.mkdtemp(dir=ctx.resources.scratch))
    try:
        if not _run_group(ctx, group, configs, progress, folder / "group"):
            # The worker died somewhere in the group; alone, the first node shows whether it is to blame.
            _run_group(ctx, group[:1], configs, progress, folder / "one")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _group(nodes: Sequence[ChainNode]) -> Sequence[ChainNode]:
    """The first node, and all that can share its load and save of the model."""
    first = nodes[0]
    size = 0
    for node in nodes:
        if not node.info.in_memory or node.info.session_only or node.host != first.host:
            break
        size += 1
    return nodes[: max(1, size)]


def _run_group(
    ctx: RunContext, group: Sequence[ChainNode], configs: Configs, progress: ChainProgress, folder: Path
) -> bool:
    """Run the nodes of `group` in a worker and record their steps.

    Returns:
        False if several nodes failed together, so that none can be blamed; nothing is recorded then.
    """
    problem = ctx.problem
    ctx.attempt.observer.on_pass_start([node.id for node in group])
    candidate = progress.candidate
    request = PassRequest(
        model=ModelFile(Path(ctx.model_path(candidate)), candidate.session_options),
        steps=tuple(PassStep(node.info.name, configs[node.id], node.id) for node in group),
        output=folder,
        accelerator=problem.accelerator,
        data=problem.data.calibration.config,
        data_root=problem.data_root,
        user_script=problem.script.path,
        reports=dict(progress.reports),
    )
    terms = CallTerms(
        subject=_subject(ctx, group, configs, candidate),
        limit=problem.limits.pass_seconds * len(group),
        phase="passes",
    )
    answer = run_pass(ctx, ctx.resources.hosts.of(group[0].host), request, terms)
    if answer.reply is not None:
        for node, step in zip(group, answer.reply.steps, strict=False):
            _record(ctx, node, configs, progress, step)
        return True
    if len(group) > 1:
        return False
    result, name = answer.result, group[0].info.name
    failure = StepReply(name, result.outcome, configs[group[0].id], message=result.message, seconds=result.seconds)
    if result.transient:
        failure = replace(failure, reports={TRANSIENT: True})
    _record(ctx, group[0], configs, progress, failure)
    return True


def _subject(ctx: RunContext, group: Sequence[ChainNode], configs: Configs, candidate: Candidate) -> Subject:
    """The passes of a group on this candidate, with their parameters, scripts and library versions."""
    keys = [_key(ctx, node, configs, candidate) for node in group]
    names = ", ".join(node.info.name for node in group)
    return Subject(digest_json(keys), f"{names} on model {candidate.artifact[:SHORT]}")


def _record(ctx: RunContext, node: ChainNode, configs: Configs, progress: ChainProgress, step: StepReply) -> None:
    """Store the result of one step, and advance `progress`."""
    outcome = step.outcome
    before = progress.candidate
    after = None
    if outcome.good:
        artifact = before.artifact
        if step.path is not None:
            artifact = ctx.store.artifacts.put(step.path, step.digest, consume=True)
        after = Candidate(artifact, dict(step.session_options))
        if after.key == before.key:
            outcome = Outcome.UNCHANGED
    recorded_environment = {**environment(), IMPLEMENTATION: to_json(Implementation.of(node.info))}
    runtime = ctx.resources.hosts.runtime_of(node.host)
    if runtime:
        recorded_environment["pass host"] = dict(runtime)
    reports = dict(step.reports)
    if is_setup_failure(outcome, step.message):
        reports[TRANSIENT] = True
    record = PassRunRecord(
        key=_key(ctx, node, configs, before),
        pass_name=node.info.name,
        params=_recorded_params(node, configs[node.id], step.params),
        input=before,
        node=node.id,
        outcome=outcome,
        output=after,
        seconds=step.seconds,
        message=step.message,
        environment=recorded_environment,
        attempts=tuple(to_json(step.attempts)),
        reports=reports,
        run=ctx.run,
    )
    ctx.store.results.finish_pass_run(record)
    ctx.attempt.counts.add_executed("pass_runs")
    ctx.attempt.observer.on_pass_end(node.id, outcome, record.seconds, record.message)
    progress.executed += 1
    progress.add(node.id, record)


def _recorded_params(node: ChainNode, config: Mapping[str, JsonValue], used: Mapping[str, JsonValue]) -> dict[str, Any]:
    """The parameters as the pass used them, but paths as they are named on this machine."""
    params = dict(used or config)
    for parameter in node.info.parameters:
        if parameter.category == "path" and parameter.name in config:
            params[parameter.name] = config[parameter.name]
    return params
