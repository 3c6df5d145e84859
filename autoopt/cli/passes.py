"""`autoopt passes`: list the passes, show one, answer for other products' names, write a new one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autoopt.cli.output import AsJson, print_json
from autoopt.cli.proposal_options import TargetDevice, TargetProvider, accelerator_of
from autoopt.errors import one_line

if TYPE_CHECKING:
    from autoopt.target import Accelerator

app = typer.Typer(rich_markup_mode=None, no_args_is_help=False)
UserScript = Annotated[str | None, typer.Option(help="Python file (path or URL) that registers passes.")]


@app.command("list")
def list_passes(
    user_script: UserScript = None,
    device: TargetDevice = None,
    ep: TargetProvider = None,
    as_json: AsJson = False,
) -> None:
    """List all passes by family, unavailable ones and broken plug-ins with the reason."""
    from autoopt.report.table import Table, write_table

    entries = _entries(user_script, device, ep)
    if as_json:
        print_json(entries)
        return
    rows = tuple((e["name"], e["family"], _state(e), e["summary"]) for e in entries)
    write_table(Table(("pass", "family", "searched", "what it does"), rows), sys.stdout)


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="Name or alias of a pass.")],
    user_script: UserScript = None,
    device: TargetDevice = None,
    ep: TargetProvider = None,
    as_json: AsJson = False,
) -> None:
    """Show one pass: parameters, what it needs and excludes."""
    from autoopt.registry import registry

    entries = {entry["name"]: entry for entry in _entries(user_script, device, ep)}
    entry = entries[name] if name in entries else entries[registry().resolve(name)]
    if as_json:
        print_json(entry)
    else:
        _write_entry(entry)


@app.command()
def compat(
    name: Annotated[str | None, typer.Argument(help="Name of a pass of PopRT or Olive; all without it.")] = None,
    as_json: AsJson = False,
) -> None:
    """Say what does here what a pass of PopRT or Olive does."""
    from autoopt.registry.compat import answer, answers
    from autoopt.report.table import Table, write_table

    found = [answer(name)] if name else list(answers().values())
    if as_json:
        print_json(found[0].to_json() if name else [each.to_json() for each in found])
    elif name:
        print(f"{found[0].name} ({found[0].product}): {found[0].text}")
    else:
        rows = tuple((each.name, each.product, each.text) for each in found)
        write_table(Table(("pass", "of", "here"), rows), sys.stdout)


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="Name of the pass, as in dag.yaml.")],
    folder: Annotated[Path, typer.Option(help="Where to write the two files.")] = Path(),
    as_json: AsJson = False,
) -> None:
    """Write a working pass with its test, to start from."""
    from autoopt.passes.catalogue.scaffold import new_pass

    files = [str(path) for path in new_pass(name, folder)]
    if as_json:
        print_json({"pass": name, "files": files})
    else:
        print("\n".join(f"wrote {file}" for file in files))


def _entries(user_script: str | None, device: str | None, ep: str | None) -> list[dict[str, Any]]:
    """All passes as documents; those of a user script are asked of a worker."""
    from autoopt.passes.catalogue.document import failure_entry, pass_entry
    from autoopt.registry import registry

    accelerator = accelerator_of(device, ep)
    if user_script:
        return _asked(user_script, accelerator)
    known = registry()
    entries = [pass_entry(known.info(name, accelerator)) for name in known.names()]
    return entries + [failure_entry(failure) for failure in known.failures]


def _asked(user_script: str, accelerator: Accelerator) -> list[dict[str, Any]]:
    from autoopt.errors import InputError
    from autoopt.json_codec import to_json
    from autoopt.model.fetch import fetch, is_url
    from autoopt.passes.catalogue.document import failure_entry, pass_entry
    from autoopt.registry import Failure, info_from_json
    from autoopt.settings import settings
    from autoopt.workers import call_once

    if is_url(user_script):
        user_script = str(fetch(user_script, settings().home / "downloads"))
    payload = {"user_script": str(Path(user_script).resolve()), "accelerator": to_json(accelerator)}
    told = call_once("autoopt.passes.runner:describe", payload)
    if told.value is None:
        raise InputError(told.message, where="" if user_script in told.message else user_script)
    entries = [pass_entry(info_from_json(info)) for info in told.value["passes"]]
    return entries + [failure_entry(Failure(**failure)) for failure in told.value["failures"]]


def _state(entry: dict[str, Any]) -> str:
    """What is searched by default, or why the pass is not available."""
    if not entry["available"]:
        return f"unavailable: {entry['missing']}"
    return ", ".join(p["name"] for p in entry["parameters"] if p["search"] is not None) or "-"


def _write_entry(entry: dict[str, Any]) -> None:
    from autoopt.passes.catalogue.document import format_values
    from autoopt.report.table import Table, write_table

    print(f"{entry['name']} ({entry['family']}): {one_line(entry['summary'])}")
    if not entry["available"]:
        print(f"  unavailable: {entry['missing']}")
    print(
        f"  tolerance: {entry['tolerance']}; from {entry['origin']}; libraries: {', '.join(entry['libraries']) or '-'}"
    )
    for label in ("requires", "conflicts", "accelerators", "needs_ops", "aliases"):
        if entry[label]:
            print(f"  {label.replace('_', ' ')}: {', '.join(entry[label])}")
    rows = tuple(
        (
            parameter["name"],
            parameter["type"],
            "required" if parameter["required"] else _plain(format_values(parameter["default"])),
            _plain(format_values(parameter["search"], listed=True)) if parameter["search"] is not None else "-",
            parameter["description"],
        )
        for parameter in entry["parameters"]
    )
    if rows:
        write_table(Table(("parameter", "type", "default", "search", "what it does"), rows), sys.stdout)


def _plain(markdown: str) -> str:
    return markdown.replace("`", "").replace("*", "")
