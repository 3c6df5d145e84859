"""`autoopt store` and `doctor`: verify, clean, count, back up and restore; problems of the installation."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autoopt.cli.option_groups import Runtimes, interpreters
from autoopt.cli.output import AsJson, example_text, exit_code, print_json, print_result
from autoopt.cli.store_access import AllowScript, existing_store
from autoopt.json_codec import to_json

if TYPE_CHECKING:
    from autoopt.problem.quarantine import Quarantined
    from autoopt.store.backup import CopyResult
    from autoopt.store.gc import CollectionResult
    from autoopt.store.verify import ArtifactProblem

app = typer.Typer(rich_markup_mode=None, no_args_is_help=False)


@app.command(epilog=example_text("autoopt store verify --repair", "autoopt store verify --lift 1f2e3d4c5b6a"))
def verify(
    repair: Annotated[bool, typer.Option("--repair", help="Rebuild lost artifacts from their lineage.")] = False,
    lift: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID",
            help="Only lift the quarantine of this work, so that it is tried again: the beginning of its id, or 'all'; "
            "may be repeated.",
        ),
    ] = None,
    allow_script: AllowScript = False,
    as_json: AsJson = False,
) -> int:
    """Read all artifacts and compare them with their digests.

    Also list work that is in quarantine because it killed its workers.

    Exit code 1 if an artifact is missing or damaged.
    """
    from autoopt.engine.tools.replay import verify_store
    from autoopt.problem.quarantine import lift as lift_quarantine
    from autoopt.problem.quarantine import quarantined

    if lift is not None:
        with existing_store() as store:
            lifted = lift_quarantine(store, [] if lift == ["all"] else lift)
        text = "\n".join(f"lifted: {item.name}" for item in lifted)
        print_result(lifted, text or "nothing is in quarantine", as_json)
        return 0
    with existing_store() as store:
        result = verify_store(store, repair=repair, allow_script=allow_script)
        items = quarantined(store)
    if as_json:
        print_json({**result.to_json(), "quarantine": to_json(items)})
    else:
        lines = list(map(_problem_line, result.problems))
        repaired = sum(problem.repaired for problem in result.problems)
        counts = f"{result.checked} artifacts, "
        if repair:
            counts += f"{repaired} repaired, "
        counts += f"{len(result.problems) - repaired} bad, {len(result.orphans)} orphans (harmless)"
        _write([*lines, counts, *map(_quarantine_line, items)])
    return exit_code(result.ok)


def _quarantine_line(item: Quarantined) -> str:
    from autoopt.problem.quarantine import SHORT

    expires = time.strftime("%Y-%m-%d", time.localtime(item.expires))
    reason = f"killed its worker {item.deaths} times, last: {item.message}"
    return f"in quarantine until {expires}: {item.name} ({reason}); --lift {item.id[:SHORT]} lets it run again"


def _problem_line(problem: ArtifactProblem) -> str:
    if problem.repaired:
        return f"{problem.kind}, repaired: {problem.digest}"
    line = f"{problem.kind}: {problem.digest}"
    if problem.reason:
        line += f" ({problem.reason})"
    return line


@app.command(epilog=example_text("autoopt store gc --keep-runs 20 --yes"))
def gc(
    keep_runs: Annotated[int | None, typer.Option(min=0, help="Keep only the newest N runs.", metavar="N")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Delete; without it, show what would be deleted.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete artifacts that no kept run uses. Without --yes, only show what would be deleted.

    Artifacts that were used in the last hour, or since the oldest unfinished run began, are kept.
    """
    from autoopt.store.gc import collect

    with existing_store() as store:
        collected = collect(store, dry_run=not yes, keep_runs=keep_runs)
    if as_json:
        print_json(collected)
    else:
        _write(_gc_lines(collected))


def _gc_lines(collected: CollectionResult) -> list[str]:
    from autoopt.report.words.formatting import bytes_text

    delete = "would delete" if collected.dry_run else "deleted"
    counts = f"{len(collected.runs)} runs, {len(collected.artifacts)} artifacts, {len(collected.leftovers)} leftovers"
    lines = [f"{delete} {counts}: {bytes_text(collected.bytes)}"]
    if collected.recent:
        reason = "were used in the last hour or since a current run began"
        lines.append(f"kept {collected.recent} artifacts that no run needs, but that {reason}")
    if collected.dry_run:
        lines.append("nothing was deleted; use --yes to delete")
    return lines


@app.command("backup", epilog=example_text("autoopt store backup /backup/autoopt"))
def backup_(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder for the backup; an earlier backup there is updated.")
    ],
    as_json: AsJson = False,
) -> int:
    """Copy the database and all artifacts into a folder. Runs may continue during the backup.

    Exit code 1 if an artifact is missing or damaged.
    """
    from autoopt.store.backup import backup

    with existing_store() as store:
        copied = backup(store, folder)
    print_result(copied, _copied_line("backed up", copied), as_json)
    return exit_code(not copied.lost)


@app.command("restore", epilog=example_text("autoopt store restore /backup/autoopt"))
def restore_(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder that 'autoopt store backup' wrote.")],
    as_json: AsJson = False,
) -> int:
    """Restore a backup. The store must be empty, lost or damaged; a damaged database file is renamed.

    Exit code 1 if the backup lacks an artifact.
    """
    from autoopt.settings import settings
    from autoopt.store.backup import restore_store

    copied = restore_store(folder, settings().db_url, settings().home.absolute())
    print_result(copied, _copied_line("restored", copied), as_json)
    return exit_code(not copied.lost)


def _copied_line(verb: str, copied: CopyResult) -> str:
    line = f"{verb} {copied.runs} runs, {copied.artifacts} artifacts"
    if copied.lost:
        line += f"; {len(copied.lost)} artifacts are missing or damaged: 'autoopt store verify --repair'"
    return line


@app.command(epilog=example_text("autoopt store stats"))
def stats(as_json: AsJson = False) -> None:
    """Show the number of rows, outcomes and bytes."""
    from autoopt.report.table import Table, write_table
    from autoopt.report.words.formatting import bytes_text, counts_text
    from autoopt.store.verify import stats as count

    with existing_store() as store:
        counts = count(store)
    if as_json:
        print_json(counts)
        return
    rows = [("database", counts.database), ("schema", str(counts.schema))]
    rows += [(name, str(number)) for name, number in counts.rows.items()]
    rows += [
        ("pass runs by outcome", counts_text(counts.pass_runs)),
        ("evaluations by outcome", counts_text(counts.evaluations)),
        ("artifacts", bytes_text(counts.artifact_bytes)),
        ("artifacts on disk", bytes_text(counts.disk_bytes)),
        ("database size", bytes_text(counts.database_bytes)),
    ]
    write_table(Table(("what", "amount"), tuple(rows)), sys.stdout)


def _write(lines: Sequence[str]) -> None:
    from autoopt.report.table import write_lines

    write_lines(lines, sys.stdout)


def doctor(runtime: Runtimes = None, as_json: AsJson = False) -> int:
    """Check versions, CPU, disk, database, runtime and Prefect, and suggest fixes.

    Exit code 3 if something does not work.
    """
    from autoopt.engine.tools.doctor import examine
    from autoopt.settings import settings

    findings = examine(settings(), interpreters(runtime))
    if as_json:
        print_json([finding.to_json() for finding in findings])
    else:
        for finding in findings:
            line = f"{finding.status:8} {finding.check:9} {finding.message}"
            if finding.remedy:
                line += f"; {finding.remedy}"
            typer.echo(line)
    if any(finding.status == "problem" for finding in findings):
        return 3
    return 0
