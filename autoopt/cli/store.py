"""`autoopt store`: verify, clean, measure, export and import."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autoopt.cli import quarantine
from autoopt.cli.output import AsJson, example_text, print_json, print_result
from autoopt.cli.run import exit_code
from autoopt.cli.store_access import AllowScript, RunName, existing_store
from autoopt.errors import InputError

if TYPE_CHECKING:
    from autoopt.store.maintenance.gc import Collected
    from autoopt.store.maintenance.quota import Evicted
    from autoopt.store.maintenance.verify import Problem

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
        lines = [_problem_line(problem) for problem in result.problems]
        repaired = sum(problem.repaired for problem in result.problems)
        counts = f"{result.checked} artifacts, "
        if repair:
            counts += f"{repaired} repaired, "
        counts += f"{len(result.problems) - repaired} bad, {len(result.orphans)} orphans (harmless)"
        _write([*lines, counts])
    return exit_code(result.ok)


def _problem_line(problem: Problem) -> str:
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
        typer.Option(help="Also evict intermediate models, least recently used first, down to this size: 20G."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Delete; without it, show what would be deleted.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete artifacts that no kept run uses. Without --yes, only show what would be deleted."""
    from autoopt.store.maintenance.gc import collect
    from autoopt.store.maintenance.quota import evict

    limit = None
    if max_size is not None:
        limit = parse_size(max_size)
    evicted = None
    with existing_store() as store:
        collected = collect(store, dry_run=not yes, keep_runs=keep_runs)
        if limit is not None:
            evicted = evict(store, limit, dry_run=not yes)
    if as_json:
        document = {**collected.to_json(), "evicted": None}
        if evicted:
            document["evicted"] = evicted.to_json()
        print_json(document)
    else:
        _write(_gc_lines(collected, evicted))


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


def _gc_lines(collected: Collected, evicted: Evicted | None) -> list[str]:
    from autoopt.report.formatting import bytes_text

    delete, evict = "deleted", "evicted"
    if collected.dry_run:
        delete, evict = "would delete", "would evict"
    counts = f"{len(collected.runs)} runs, {len(collected.artifacts)} artifacts, {len(collected.leftovers)} leftovers"
    lines = [f"{delete} {counts}: {bytes_text(collected.bytes)}"]
    if evicted:
        size = f"{bytes_text(evicted.bytes)}; {bytes_text(evicted.left)} left"
        lines.append(f"{evict} {len(evicted.artifacts)} intermediate models: {size}")
    if collected.dry_run:
        lines.append("nothing was deleted; use --yes to delete")
    return lines


@app.command(epilog=example_text("autoopt store stats"))
def stats(as_json: AsJson = False) -> None:
    """Count rows, outcomes and bytes."""
    from autoopt.report.formatting import bytes_text, counts_text
    from autoopt.report.table import Table, write_table
    from autoopt.store.maintenance.stats import stats as count

    with existing_store() as store:
        counts = count(store)
    if as_json:
        print_json(counts.to_json())
        return
    rows = [("database", counts.database), ("schema", counts.schema)]
    rows += [(name, str(number)) for name, number in counts.rows.items()]
    rows += [
        ("pass runs by outcome", counts_text(counts.pass_runs)),
        ("evaluations by outcome", counts_text(counts.evaluations)),
        ("artifacts", bytes_text(counts.artifact_bytes)),
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
    """Export a run with its artifacts to a file, for another machine."""
    from autoopt.store.maintenance.transfer import export_run

    with existing_store() as store:
        record = store.runs.get(run)
        export_run(store, record.id, out)
    print_result({"run": record.id, "path": str(out.absolute())}, f"wrote {out}", as_json)


@app.command("import", epilog=example_text("autoopt store import run.tar"))
def import_(
    file: Annotated[Path, typer.Argument(help="A file that 'autoopt store export' wrote.")],
    reuse: Annotated[bool, typer.Option("--reuse", help="Let later runs use its results, as if made here.")] = False,
    as_json: AsJson = False,
) -> None:
    """Import a run exported on another machine, to look at it.

    It is marked as imported and cannot be resumed.
    """
    from autoopt.settings import settings
    from autoopt.store import open_store
    from autoopt.store.maintenance.transfer import import_run

    if not file.is_file():
        raise InputError("no such file", where=str(file))
    current = settings()
    with open_store(current.db_url, current.home) as store:
        run = import_run(store, file, reuse=reuse)
    print_result({"run": run}, f"imported run {run}", as_json)


def _write(lines: Sequence[str]) -> None:
    from autoopt.report.table import write_lines

    write_lines(lines, sys.stdout)
