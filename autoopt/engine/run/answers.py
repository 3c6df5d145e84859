"""Record the answer of a command, so that the same command again plans nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from autoopt.data import DataConfig
from autoopt.data.digest import digest as digest_data
from autoopt.engine.inputs.request import RunRequest
from autoopt.engine.run.opening import is_complete
from autoopt.engine.run.output_folder import PACKAGE_FILES
from autoopt.engine.run.session import Session
from autoopt.engine.work.answers import (
    PATIENCE,
    CommandLine,
    StoredAnswer,
    content_digest,
    store_answer,
    surroundings,
)
from autoopt.engine.work.problem import DataSource
from autoopt.engine.work.readings import is_read_from_files
from autoopt.model.candidate import digest_json
from autoopt.results import RunResult
from autoopt.settings import settings
from autoopt.spec.proposal_options import names_model
from autoopt.store.finished_search import finished_search
from autoopt.workers import Gate
from autoopt.workers.gate import report_waiting


def record_answer(session: Session, request: RunRequest, result: RunResult) -> None:
    """Record the result of the request's command, if it follows from files of this machine alone.

    `result` is what the command shows after its export.
    """
    command, home = request.command, session.ctx.store.home
    document = result.to_json()
    if command is None or settings().db_url or not is_complete(document) or not _is_local(session):
        return
    identity = session.record.identity
    stored = finished_search(home, identity)
    if stored is None or json.loads(stored)["run"] != result.run:
        return
    assert request.out is not None, "the command line always exports"
    package = [str((request.out / name).absolute()) for name in PACKAGE_FILES]
    with Gate(waiting=report_waiting).brief_work(PATIENCE):  # reading much disturbs what is measured meanwhile
        inputs = _inputs(session, request, command)
        if not _are_lasting(inputs, home):
            return
        outputs = {path: content_digest(path) for path in package}
    answer = StoredAnswer(identity, digest_json(stored), surroundings(), {**inputs, **outputs}, document)
    store_answer(home, command, answer)


def _are_lasting(inputs: Mapping[str, str], home: Path) -> bool:
    """True if no input has changed since, or was downloaded: the next download may be another file."""
    return all(inputs.values()) and not any(Path(path).is_relative_to(home / "downloads") for path in inputs)


def _is_local(session: Session) -> bool:
    """True if all passes run and all candidates are measured in this interpreter, whose versions are known at once."""
    hosts = [node.host for chain in session.chains.values() for node in chain.nodes]
    return all(host.type == "local" for host in [session.ctx.problem.host, *hosts])


def _inputs(session: Session, request: RunRequest, command: CommandLine) -> dict[str, str]:
    """Digests of all that the command read, by absolute path; empty for what has changed since, or may be anything."""
    problem = session.ctx.problem
    read = {session.model: problem.source.artifact}
    if not names_model(request.dag):
        read[str(request.dag)] = command.dag
    if problem.script.path is not None:
        read[problem.script.path] = problem.script.digest
        read.update(problem.script.imports)
    for files in problem.plan.files.values():
        read.update({str(file.path): file.digest for file in files})
    inputs: dict[str, str] = {}
    for path, digest in read.items():
        unchanged = content_digest(path) == digest
        inputs[str(Path(path).absolute())] = digest if unchanged else ""
    for data in (problem.data.evaluation, problem.data.calibration, problem.data.latency):
        inputs.update(_data_files(data))
    return inputs


def _data_files(data: DataSource) -> dict[str, str]:
    """The same for the files of a data set."""
    if data.config is None:
        return {}
    config = DataConfig.parse(data.config)
    if not is_read_from_files(data.config) or digest_data(config) != data.digest:
        return {data.place: ""}
    return {path: content_digest(path) for path in (*config.paths(), *config.optional_paths())}
