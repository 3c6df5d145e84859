"""`autoopt passes`: list passes, show one, also by its name in other products, create one from a template."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autoopt.cli.completion import complete_pass
from autoopt.cli.option_groups import TargetDevice, TargetProvider, accelerator_of
from autoopt.cli.output import AsJson, example_text, print_json, print_result
from autoopt.errors import one_line
from autoopt.json_codec import to_json

if TYPE_CHECKING:
    from autoopt.registry import PassInfo

app = typer.Typer(rich_markup_mode=None, no_args_is_help=False)
UserScript = Annotated[str | None, typer.Option(metavar="PATH", help="Python file or URL that registers passes.")]


@app.command("list", epilog=example_text("autoopt passes list"))
def list_passes(
    user_script: UserScript = None, device: TargetDevice = None, ep: TargetProvider = None, as_json: AsJson = False
) -> None:
    """List all passes by family; unavailable ones with the reason."""
    from autoopt.passes.catalogue.document import pass_entry
    from autoopt.report.table import Table, write_table

    infos = _infos(user_script, device, ep)
    if as_json:
        print_json(list(map(pass_entry, infos)))
        return
    rows = tuple((info.name, info.family, _search_text(info), info.summary) for info in infos)
    write_table(Table(("pass", "family", "searched", "description"), rows), sys.stdout)


@app.command(epilog=example_text("autoopt passes show static_quantization", "autoopt passes show OnnxQuantization"))
def show(
    name: Annotated[
        str,
        typer.Argument(
            metavar="PASS", help="Name of a pass, also one of Olive or PopRT.", autocompletion=complete_pass
        ),
    ],
    user_script: UserScript = None,
    device: TargetDevice = None,
    ep: TargetProvider = None,
    as_json: AsJson = False,
) -> None:
    """Show one pass: its parameters, requirements and conflicts.

    Of a pass of Olive or PopRT, show the equivalent.
    """
    from autoopt.passes.catalogue.document import pass_entry
    from autoopt.registry import registry
    from autoopt.registry.compat import answers

    infos = {info.name: info for info in _infos(user_script, device, ep)}
    answer = answers().get(name)
    if name not in infos and answer is not None:
        print_result(answer.to_json(), f"{answer.name} ({answer.product}): {answer.text}", as_json)
        return
    if name not in infos:
        name = registry().resolve(name)
    if as_json:
        print_json(pass_entry(infos[name]))
    else:
        _write_info(infos[name])


@app.command(epilog=example_text("autoopt passes new strip_docs"))
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the pass, as in dag.yaml.")],
    folder: Annotated[Path, typer.Option(help="Folder for the two files.")] = Path(),
    as_json: AsJson = False,
) -> None:
    """Create a pass and its test from a template."""
    from autoopt.passes.catalogue.scaffold import new_pass

    files = list(map(str, new_pass(name, folder)))
    print_result({"pass": name, "files": files}, "\n".join(f"wrote {file}" for file in files), as_json)


def _infos(user_script: str | None, device: str | None, ep: str | None) -> list[PassInfo]:
    """All passes, and plug-ins that could not be loaded as unavailable passes.

    A worker describes the passes of a user script, because the script is not trusted.
    """
    from autoopt.model.fetch import fetch, is_url
    from autoopt.registry import DESCRIBE, DescribeReply, DescribeRequest, PassInfo, registry
    from autoopt.settings import settings
    from autoopt.workers import call_once

    accelerator = accelerator_of(device, ep)
    if user_script:
        if is_url(user_script):
            user_script = str(fetch(user_script, settings().home / "downloads"))
        request = DescribeRequest(str(Path(user_script).resolve()), accelerator)
        result = call_once(DESCRIBE, to_json(request))
        if result.value is None:
            raise result.to_exception(user_script)
        reply = DescribeReply.from_json(result.value)
        infos, failures = list(reply.passes), reply.failures
    else:
        passes = registry()
        infos = [passes.info(name, accelerator) for name in passes.names()]
        failures = tuple(passes.failures)
    for failure in failures:
        info = PassInfo(failure.origin, "plug-in", "could not be loaded", missing=failure.reason, origin=failure.origin)
        infos.append(info)
    return infos


def _search_text(info: PassInfo) -> str:
    """The parameters that are searched by default, or the reason why the pass is unavailable."""
    if not info.available:
        return f"unavailable: {info.missing}"
    return ", ".join(parameter.name for parameter in info.parameters if parameter.search is not None) or "-"


def _write_info(info: PassInfo) -> None:
    from autoopt.passes.catalogue.document import parameter_texts
    from autoopt.report.table import Table, write_table

    print(f"{info.name} ({info.family}): {one_line(info.summary)}")
    if not info.available:
        print(f"  unavailable: {info.missing}")
    print(f"  tolerance: {info.tolerance}; from {info.origin}; libraries: {', '.join(info.libraries) or '-'}")
    for label in ("requires", "conflicts", "accelerators", "needs_ops", "refuses_ops", "aliases"):
        names = getattr(info, label)
        if names:
            print(f"  {label.replace('_', ' ')}: {', '.join(names)}")
    rows = []
    for parameter in info.parameters:
        default, search = (text.replace("`", "").replace("*", "") for text in parameter_texts(parameter))
        rows.append((parameter.name, parameter.type, default, search or "-", parameter.description))
    if rows:
        write_table(Table(("parameter", "type", "default", "search", "description"), tuple(rows)), sys.stdout)
