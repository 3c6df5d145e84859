"""`autoopt store`: verify, clean, measure, export and import."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autoopt.cli.output import AsJson, print_json
from autoopt.cli.runs import RunName
from autoopt.cli.store_access import existing_store
from autoopt.errors import InputError

if TYPE_CHECKING:
    from autoopt.store.maintenance.gc import Collected
    from autoopt.store.maintenance.quota import Evicted
    from autoopt.store.maintenance.verify import Problem

UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
Sure = Annotated[bool, typer.Option("--yes", "-y", help="Do it; otherwise it only says what it would do.")]

app = typer.Typer(rich_markup_mode=None, no_args_is_help=False)


@app.command()
def verify(
    repair: Annotated[bool, typer.Option("--repair", help="Make lost artifacts again from their lineage.")] = False,
    as_json: AsJson = False,
) -> int:
    """Read every artifact and compare it with its digest; exit code 1 where one is missing or damaged."""
    from autoopt.engine.tools.maintenance import verify_store

    with existing_store() as store:
        found = verify_store(store, repair=repair)
    if as_json:
        print_json(found.to_json())
    else:
        _write([_problem(p) for p in found.problems])
        bad = sum(not p.repaired for p in found.problems)
        repaired = f"{len(found.problems) - bad} repaired, " if repair else ""
        _write([f"{found.checked} artifacts, {repaired}{bad} bad, {len(found.orphans)} orphans (harmless)"])
    return 0 if found.ok else 1


def _problem(problem: Problem) -> str:
    if problem.repaired:
        return f"{problem.kind}, repaired: {problem.digest}"
    return f"{problem.kind}: {problem.digest}" + (f" ({problem.reason})" if problem.reason else "")


@app.command()
def gc(
    keep_runs: Annotated[int | None, typer.Option(min=0, help="Forget all but the newest so many runs first.")] = None,
    max_size: Annotated[
        str | None, typer.Option(help="Also evict intermediates, longest unused first, down to this size: 20G.")
    ] = None,
    yes: Sure = False,
    as_json: AsJson = False,
) -> None:
    """Take away what no kept run needs. Says what it would do, and does it with --yes."""
    from autoopt.store.maintenance.gc import collect
    from autoopt.store.maintenance.quota import evict

    limit = None if max_size is None else size(max_size)
    with existing_store() as store:
        collected = collect(store, dry_run=not yes, keep_runs=keep_runs)
        evicted = None if limit is None else evict(store, limit, dry_run=not yes)
    if as_json:
        print_json({**collected.to_json(), "evicted": evicted.to_json() if evicted else None})
    else:
        _write(_cleaned(collected, evicted))


def size(text: str) -> int:
    """Bytes from `500000`, `20G`, `1.5 TB`.

    Raises:
        InputError: it is none of these.
    """
    number = text.strip().removesuffix("B").strip()
    unit = number[-1:] if number[-1:] in UNITS and not number[-1:].isdigit() else ""
    try:
        value = float(number.removesuffix(unit)) * UNITS[unit]
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise InputError(f"--max-size {text!r} is no size", remedy="write bytes, or a number with k, M, G or T")
    return int(value)


def _cleaned(collected: Collected, evicted: Evicted | None) -> list[str]:
    from autoopt.report.formatting import bytes_text

    word = "would remove" if collected.dry_run else "removed"
    counts = f"{len(collected.runs)} runs, {len(collected.artifacts)} artifacts, {len(collected.leftovers)} leftovers"
    lines = [f"{word} {counts}: {bytes_text(collected.bytes)}"]
    if evicted:
        word = "would evict" if evicted.dry_run else "evicted"
        gone, left = bytes_text(evicted.bytes), bytes_text(evicted.left)
        lines.append(f"{word} {len(evicted.artifacts)} intermediates: {gone}; {left} left")
    return [*lines, *(["nothing was done; --yes does it"] if collected.dry_run else [])]


@app.command()
def stats(as_json: AsJson = False) -> None:
    """Count rows, outcomes and bytes."""
    from autoopt.report.formatting import bytes_text, counts_text
    from autoopt.report.table import Table, write_table
    from autoopt.store.maintenance.stats import stats as count

    with existing_store() as store:
        found = count(store)
    if as_json:
        print_json(found.to_json())
        return
    rows: list[tuple[str, str]] = [("database", found.database), ("schema", found.schema)]
    rows += [(name, str(number)) for name, number in found.rows.items()]
    rows += [
        ("pass runs by outcome", counts_text(found.pass_runs)),
        ("evaluations by outcome", counts_text(found.evaluations)),
    ]
    rows += [("artifacts", bytes_text(found.artifact_bytes)), ("evicted artifacts", str(found.evicted))]
    write_table(Table(("what", "how much"), (*rows, ("database size", bytes_text(found.database_bytes)))), sys.stdout)


@app.command("export")
def export_(
    run: RunName = "latest",
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write.")] = Path("run.tar"),
    as_json: AsJson = False,
) -> None:
    """Write one run with its artifacts into a file for another machine."""
    from autoopt.store.maintenance.transfer import export_run

    with existing_store() as store:
        record = store.runs.get(run)
        export_run(store, record.id, out)
    _said({"run": record.id, "path": str(out.absolute())}, f"wrote {out}", as_json)


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="A file that 'autoopt store export' wrote.")], as_json: AsJson = False
) -> None:
    """Take over a run from another machine."""
    from autoopt.settings import settings
    from autoopt.store import open_store
    from autoopt.store.maintenance.transfer import import_run

    if not file.is_file():
        raise InputError("no such file", where=str(file))
    here = settings()
    with open_store(here.db_url, here.home) as store:
        run = import_run(store, file)
    _said({"run": run}, f"imported run {run}", as_json)


def _said(document: dict[str, Any], text: str, as_json: bool) -> None:
    if as_json:
        print_json(document)
    else:
        _write([text])


def _write(lines: Sequence[str]) -> None:
    from autoopt.report.table import write_lines

    write_lines(lines, sys.stdout)
