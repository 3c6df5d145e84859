"""`autoopt store`: verify, clean, count, back up and restore."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autoopt.cli import quarantine
from autoopt.cli.output import AsJson, example_text, exit_code, print_json, print_result
from autoopt.cli.store_access import AllowScript, existing_store

if TYPE_CHECKING:
    from autoopt.store.maintenance.backup import CopyResult
    from autoopt.store.maintenance.gc import CollectionResult
    from autoopt.store.maintenance.verify import ArtifactProblem

app = typer.Typer(rich_markup_mode=None, no_args_is_help=False)
app.add_typer(
    quarantine.app,
    name="quarantine",
    help="Show and lift the quarantine of work that killed its workers.",
    epilog=example_text("autoopt store quarantine list"),
)


@app.command(epilog=example_text("autoopt store verify --repair"))
def verify(
    repair: Annotated[bool, typer.Option("--repair", help="Rebuild lost artifacts from their lineage.")] = False,
    allow_script: AllowScript = False,
    as_json: AsJson = False,
) -> int:
    """Read all artifacts and compare them with their digests.

    Exit code 1 if one is missing or damaged.
    """
    from autoopt.engine.tools.maintenance import verify_store

    with existing_store() as store:
        result = verify_store(store, repair=repair, allow_script=allow_script)
    if as_json:
        print_json(result.to_json())
    else:
        lines = list(map(_problem_line, result.problems))
        repaired = sum(problem.repaired for problem in result.problems)
        counts = f"{result.checked} artifacts, "
        if repair:
            counts += f"{repaired} repaired, "
        counts += f"{len(result.problems) - repaired} bad, {len(result.orphans)} orphans (harmless)"
        _write([*lines, counts])
    return exit_code(result.ok)


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
    from autoopt.store.maintenance.gc import collect

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
    from autoopt.store.maintenance.backup import backup

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
    from autoopt.store.maintenance.backup import restore_store

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
    from autoopt.store.maintenance.stats import stats as count

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
