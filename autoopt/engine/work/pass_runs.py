"""Take a chain at one point to its candidate: look up each pass run, execute missing ones, record them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autoopt.dag.compiler.chain import ChainNode
from autoopt.data.digest import InputChanged, digest_path
from autoopt.engine.work.calls import CallTerms, run_pass
from autoopt.engine.work.context import RunContext, claim_or_wait, released_on_error
from autoopt.errors import TimeUp
from autoopt.json_codec import JsonValue, to_json
from autoopt.model.candidate import Candidate, digest_json
from autoopt.model.model_file import ModelFile
from autoopt.outcome import Cause, Outcome
from autoopt.passes.request import PassRequest, PassStep, StepReply
from autoopt.problem.content_keys import Implementation, PassRunInput, pass_run_key
from autoopt.problem.environment import environment
from autoopt.problem.quarantine import SHORT, Subject
from autoopt.registry import PassInfo
from autoopt.search.history import FAILED
from autoopt.store import PassRunRecord
from autoopt.store.records import IMPLEMENTATION, MEMORY, TRANSIENT
from autoopt.target import Accelerator

Configs = Mapping[str, Mapping[str, JsonValue]]
"""Full configuration of each node, by node id."""


@dataclass(frozen=True)
class ConfiguredNode:
    """A node of a chain with the full configuration of its pass."""

    node: ChainNode
    config: Mapping[str, JsonValue]

    @property
    def info(self) -> PassInfo:
        return self.node.info


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
    left: list[str] = field(default_factory=list)
    """Keys of the candidates that the pass runs left; `FAILED` for a failure that would repeat."""
    reports: dict[str, JsonValue] = field(default_factory=dict)
    """Reports of analyses on the candidate, by pass name."""

    def add(self, node: str, record: PassRunRecord) -> None:
        """Advance past the pass run of a node, or stop at its failure."""
        self.keys.append(record.key)
        if not record.transient:
            self.left.append(FAILED if record.output is None else record.output.key)
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


class _PassTimeUp(TimeUp):
    """The run's time limit passed while a pass ran."""

    def __init__(self, pass_name: str, what: str) -> None:
        super().__init__(what)
        self.pass_name = pass_name


def run_chain(ctx: RunContext, nodes: Sequence[ChainNode], configs: Configs) -> ChainProgress:
    """Run the nodes on the source model, up to the first failure."""
    progress = ChainProgress(ctx.problem.source)
    configured = [ConfiguredNode(node, configs[node.id]) for node in nodes]
    while progress.completed < len(nodes) and progress.outcome.good:
        remaining = configured[progress.completed :]
        try:
            record = _look_up_or_execute(ctx, remaining, progress)
        except TimeUp as error:
            progress.outcome = Outcome.TIMEOUT
            progress.message = f"{remaining[0].info.name}: {error}"
            if isinstance(error, _PassTimeUp):
                progress.message = f"{error.pass_name}: {error}"
            break
        if record is not None:
            ctx.attempt.counts.add_reused("pass_runs")
            progress.add(remaining[0].node.id, record)
    return progress


def stored_pass_run(ctx: RunContext, node: ChainNode, configs: Configs, candidate: Candidate) -> PassRunRecord | None:
    """The stored run of a node on `candidate`; None if it has to be executed."""
    key = _key(ctx, ConfiguredNode(node, configs[node.id]), candidate)
    return ctx.attempt.reusable(ctx.store.results.pass_run(key))


def _look_up_or_execute(
    ctx: RunContext, remaining: Sequence[ConfiguredNode], progress: ChainProgress
) -> PassRunRecord | None:
    """The stored run of the first remaining node, or None after executing it, which advances `progress`.

    Another thread or process may be at the same pass run: the lock holds back those of this process, the claim those of
    others. Who comes later finds the record.
    """
    node = remaining[0]
    key = _key(ctx, node, progress.candidate)
    stored = ctx.store.results.pass_run(key)
    record = ctx.attempt.reusable(stored)
    redo = stored is not None and record is None
    if record is None:
        record = _cpu_pass_run(ctx, node, progress.candidate)
    if record is not None:
        return record
    with ctx.resources.locks.holding(key):
        if claim_or_wait(ctx.store, ctx.attempt, "pass_run", key, ctx.problem.limits.pass_seconds, redo=redo):
            with released_on_error(ctx.store, "pass_run", key):
                _execute(ctx, remaining, progress)
            return None
    return ctx.store.results.pass_run(key)


def _key(
    ctx: RunContext, configured: ConfiguredNode, candidate: Candidate, accelerator: Accelerator | None = None
) -> str:
    work = PassRunInput(
        candidate=candidate,
        accelerator=accelerator or ctx.problem.accelerator,
        calibration=ctx.problem.data.calibration.digest,
        files=_file_digests(ctx, configured),
        runtime=ctx.problem.runtime_of(configured.node.host),
        roles=ctx.problem.measurement_settings.roles or {},
    )
    return pass_run_key(configured.info, configured.config, work)


def _file_digests(ctx: RunContext, configured: ConfiguredNode) -> dict[str, str]:
    """Digests of the files and folders that the configuration names, by parameter.

    Raises:
        InputChanged: One is not what it was when the run was planned.
    """
    digests: dict[str, str] = {}
    for file in ctx.problem.plan.files.get(configured.node.id, ()):
        if configured.config.get(file.parameter) != file.text:
            continue
        if file.path.exists():
            digests[file.parameter] = digest_path(file.path)
        if file.digest and digests.get(file.parameter) != file.digest:
            raise InputChanged(str(file.path))
    return digests


def _cpu_pass_run(ctx: RunContext, configured: ConfiguredNode, candidate: Candidate) -> PassRunRecord | None:
    """The good run of the same pass for the CPU, if the pass does not depend on the target.

    The CPU's check of the result is the strictest, so its result holds for every target.
    """
    cpu = Accelerator()
    if configured.info.target_bound or ctx.problem.accelerator.execution_provider == cpu.execution_provider:
        return None
    record = ctx.store.results.pass_run(_key(ctx, configured, candidate, cpu))
    if record is None or not record.outcome.good:
        return None
    return record


def _execute(ctx: RunContext, remaining: Sequence[ConfiguredNode], progress: ChainProgress) -> None:
    """Execute the first remaining node, together with the in-memory graph passes that follow it."""
    group = _group(ctx, remaining)
    folder = Path(tempfile.mkdtemp(dir=ctx.resources.scratch))
    try:
        if not _run_group(ctx, group, progress, folder / "group"):
            # The worker died somewhere in the group; alone, the first node shows whether it is to blame.
            _run_group(ctx, group[:1], progress, folder / "one")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _group(ctx: RunContext, remaining: Sequence[ConfiguredNode]) -> Sequence[ConfiguredNode]:
    """The first node, and all that can share its load and save of the model, and its worker.

    Passes that need the user's script have workers of their own, in which the script may change whatever it likes.
    """
    first = remaining[0]
    size = 0
    for configured in remaining:
        info = configured.info
        if not info.in_memory or info.session_only or configured.node.host != first.node.host:
            break
        if _needs_script(ctx, configured) != _needs_script(ctx, first):
            break
        size += 1
    return remaining[: max(1, size)]


def _needs_script(ctx: RunContext, configured: ConfiguredNode) -> bool:
    """True if the pass, one that it is composed of, or an object in its parameters comes from the user's script."""
    script, info = ctx.problem.script.content, configured.info
    return bool(script) and script in info.source_digest


def _run_group(ctx: RunContext, group: Sequence[ConfiguredNode], progress: ChainProgress, folder: Path) -> bool:
    """Run the nodes of `group` in a worker and record their steps.

    The inputs are compared with the digests of the plan after the call and before anything is recorded: a pass may have
    read a file that changed meanwhile, and its result would be found under the key of the old content.

    Returns:
        False if several nodes failed together, so that none can be blamed; nothing is recorded then.
    """
    problem = ctx.problem
    ctx.attempt.observer.on_pass_start([configured.node.id for configured in group])
    candidate = progress.candidate
    host = ctx.resources.hosts.of(group[0].node.host)
    request = PassRequest(
        model=ModelFile(ctx.model_path(candidate), candidate.session_options),
        steps=tuple(PassStep(step.info.name, step.config, step.node.id) for step in group),
        output=folder,
        accelerator=problem.accelerator,
        data=problem.data.calibration.config,
        data_root=problem.data_root,
        user_script=problem.script.path if _needs_script(ctx, group[0]) else None,
        reports=dict(progress.reports),
        roles=problem.measurement_settings.roles or {},
        split_folder=ctx.store.artifacts.split_folder.absolute(),
    )
    terms = CallTerms(
        subject=_subject(ctx, group, candidate), limit=problem.limits.pass_seconds * len(group), phase="passes"
    )
    try:
        answer = run_pass(ctx, host, request, terms)
    except TimeUp as error:
        cut_off = request.step_in_progress()
        raise error if cut_off is None else _PassTimeUp(cut_off.pass_name, str(error)) from None
    problem.data.calibration.check_unchanged()
    problem.script.check_unchanged()
    if answer.reply is not None:
        # The reply ends at the first failure.
        for configured, step in zip(group, answer.reply.steps, strict=False):
            _record(ctx, configured, progress, step)
        return True
    if len(group) > 1:
        return False
    result, name = answer.result, group[0].info.name
    failure = StepReply(
        name, result.outcome, group[0].config, message=result.message, cause=result.cause, seconds=result.seconds
    )
    _record(ctx, group[0], progress, failure)
    return True


def _subject(ctx: RunContext, group: Sequence[ConfiguredNode], candidate: Candidate) -> Subject:
    """The passes of a group on this candidate, with their parameters, scripts and library versions."""
    keys = [_key(ctx, node, candidate) for node in group]
    names = ", ".join(node.info.name for node in group)
    return Subject(digest_json(keys), f"{names} on model {candidate.artifact[:SHORT]}")


def _record(ctx: RunContext, configured: ConfiguredNode, progress: ChainProgress, step: StepReply) -> None:
    """Store the result of one step, and advance `progress`.

    The model comes before the record that names it. Whether it changed is decided by its key, whatever the pass says,
    so that equal candidates are known as such.
    """
    node, outcome = configured.node, step.outcome
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
    runtime = ctx.problem.runtime_of(node.host)
    if runtime:
        recorded_environment["pass host"] = dict(runtime)
    if outcome is Outcome.OUT_OF_MEMORY:
        recorded_environment[MEMORY] = ctx.attempt.retry.memory
    reports = dict(step.reports)
    if step.cause is not Cause.WORK:
        reports[TRANSIENT] = True
    record = PassRunRecord(
        key=_key(ctx, configured, before),
        pass_name=node.info.name,
        params=_recorded_params(configured, step.params),
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


def _recorded_params(configured: ConfiguredNode, used: Mapping[str, JsonValue]) -> dict[str, Any]:
    """The parameters as the pass used them, but paths as they are named on this machine."""
    params = dict(used or configured.config)
    for parameter in configured.info.parameters:
        if parameter.category == "path" and parameter.name in configured.config:
            params[parameter.name] = configured.config[parameter.name]
    return params
