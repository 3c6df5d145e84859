"""`autoopt store`: verify, clean, measure, export and import, back up and repair."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autoopt.cli import quarantine
from autoopt.cli.output import AsJson, example_text, exit_code, print_json, print_result
from autoopt.cli.store_access import AllowScript, RunName, existing_store
from autoopt.errors import InputError

if TYPE_CHECKING:
    from autoopt.store.maintenance.backup import CopyResult
    from autoopt.store.maintenance.gc import CollectionResult
    from autoopt.store.maintenance.quota import EvictionResult
    from autoopt.store.maintenance.verify import ArtifactProblem

UNITS = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}

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
    max_size: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE", help="Also evict intermediate models, least recently used first, down to this size: 20G."
        ),
    ] = None,
    lost: Annotated[
        bool, typer.Option("--lost", help="Also delete unused models that a lost database may have named.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Delete; without it, show what would be deleted.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete artifacts that no kept run uses. Without --yes, only show what would be deleted.

    Artifacts that were used in the last hour, or since the oldest unfinished run began, are kept.
    """
    from autoopt.store.maintenance.gc import collect
    from autoopt.store.maintenance.quota import evict

    limit = parse_size(max_size) if max_size is not None else None
    evicted = None
    with existing_store() as store:
        collected = collect(store, dry_run=not yes, keep_runs=keep_runs, lost=lost)
        if limit is not None:
            evicted = evict(store, limit, dry_run=not yes)
    if as_json:
        print_json({**vars(collected), "evicted": evicted})
    else:
        _write(_gc_lines(collected, evicted, limit))


def parse_size(text: str) -> int:
    """Bytes from `500000`, `20G`, `1.5 TB`.

    Raises:
        InputError: it is none of these.
    """
    number = text.strip().removesuffix("B").strip()
    factor = UNITS.get(number[-1:], 1)
    if factor > 1:
        number = number[:-1]
    try:
        value = float(number) * factor
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise InputError(f"--max-size {text!r} is not a size", remedy="use bytes, or a number with k, M, G or T")
    return int(value)


def _gc_lines(collected: CollectionResult, evicted: EvictionResult | None, limit: int | None) -> list[str]:
    from autoopt.report.words.formatting import bytes_text

    delete, evict = "deleted", "evicted"
    if collected.dry_run:
        delete, evict = "would delete", "would evict"
    counts = f"{len(collected.runs)} runs, {len(collected.artifacts)} artifacts, {len(collected.leftovers)} leftovers"
    lines = [f"{delete} {counts}: {bytes_text(collected.bytes)}"]
    if collected.spared:
        lines.append(f"kept {collected.spared} artifacts that a lost database may have named; --lost deletes them")
    if collected.recent:
        reason = "were used in the last hour or since a current run began"
        lines.append(f"kept {collected.recent} artifacts that no run needs, but that {reason}")
    if evicted:
        size = f"{bytes_text(evicted.bytes)}; {bytes_text(evicted.left)} left"
        lines.append(f"{evict} {len(evicted.artifacts)} intermediate models: {size}")
    if evicted and limit is not None and evicted.left > limit:
        kept = "these are sources and results of runs, or in use"
        lines.append(f"more than --max-size: {kept}; --keep-runs N deletes runs")
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
    from autoopt.engine.tools.rebuild import restore_store
    from autoopt.settings import settings

    copied = restore_store(folder, settings().db_url, settings().home.absolute())
    print_result(copied, _copied_line("restored", copied), as_json)
    return exit_code(not copied.lost)


def _copied_line(verb: str, copied: CopyResult) -> str:
    line = f"{verb} {copied.runs} runs, {copied.artifacts} artifacts"
    if copied.lost:
        line += f"; {len(copied.lost)} artifacts are missing or damaged: 'autoopt store verify --repair'"
    return line


@app.command("repair", epilog=example_text("autoopt store repair", "autoopt store repair out/recipe.json"))
def repair_(
    recipes: Annotated[
        list[Path] | None, typer.Argument(metavar="RECIPE", help="recipe.json files of exported models.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Recover a store whose database is damaged or lost.

    A damaged file is renamed; its readable rows, all intact artifacts and the runs of recipes go into a new database.
    """
    from autoopt.engine.tools.rebuild import repair_store
    from autoopt.settings import settings

    rebuilt = repair_store(settings().db_url, settings().home.absolute(), recipes or ())
    lines = []
    if rebuilt.set_aside:
        lines.append(f"the damaged database is now {rebuilt.set_aside}; {rebuilt.rows} rows could be read")
    lines.append(f"artifacts without a row: {len(rebuilt.adopted)} added, {len(rebuilt.damaged)} damaged")
    if recipes:
        lines.append(f"runs added from recipes: {', '.join(rebuilt.runs) or 'none'}")
    print_result(rebuilt, "\n".join(lines), as_json)


@app.command(epilog=example_text("autoopt store stats"))
def stats(as_json: AsJson = False) -> None:
    """Show the number of rows, outcomes and bytes."""
    from autoopt.report.elements.table import Table, write_table
    from autoopt.report.words.formatting import bytes_text, counts_text
    from autoopt.store.maintenance.stats import stats as count

    with existing_store() as store:
        counts = count(store)
    if as_json:
        print_json(counts)
        return
    rows = [("database", counts.database), ("schema", counts.schema)]
    rows += [(name, str(number)) for name, number in counts.rows.items()]
    rows += [
        ("pass runs by outcome", counts_text(counts.pass_runs)),
        ("evaluations by outcome", counts_text(counts.evaluations)),
        ("artifacts", bytes_text(counts.artifact_bytes)),
        ("artifacts on disk", bytes_text(counts.disk_bytes)),
        ("evicted artifacts", str(counts.evicted)),
        ("database size", bytes_text(counts.database_bytes)),
    ]
    write_table(Table(("what", "amount"), tuple(rows)), sys.stdout)


@app.command("export", epilog=example_text("autoopt store export latest --out run.tar"))
def export_(
    run: RunName = "latest",
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write.")] = Path("run.tar"),
    as_json: AsJson = False,
) -> None:
    """Export a run with its artifacts for another machine."""
    from autoopt.store.maintenance.transfer import export_run

    with existing_store() as store:
        record = store.runs.get(run)
        export_run(store, record.id, out)
    print_result({"run": record.id, "path": str(out.absolute())}, f"wrote {out}", as_json)


@app.command("import", epilog=example_text("autoopt store import run.tar"))
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that 'autoopt store export' wrote.")],
    reuse: Annotated[bool, typer.Option("--reuse", help="Let later runs use its results, as if made here.")] = False,
    as_json: AsJson = False,
) -> None:
    """Import a run that was exported on another machine.

    It is marked as imported and cannot be resumed.
    """
    from autoopt.store import open_store
    from autoopt.store.maintenance.transfer import import_run

    if not file.is_file():
        raise InputError("no such file", where=str(file))
    with open_store() as store:
        run = import_run(store, file, reuse=reuse)
    print_result({"run": run}, f"imported run {run}", as_json)


def _write(lines: Sequence[str]) -> None:
    from autoopt.report.elements.table import write_lines

    write_lines(lines, sys.stdout)
