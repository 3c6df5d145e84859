"""`autoopt passes`, `apply` and `data`: the passes, one pass applied to one model, and what a model would be fed."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autoopt.cli.completion import complete_pass
from autoopt.cli.data_options import DataOptions
from autoopt.cli.option_groups import TargetDevice, TargetProvider, accelerator_of, with_option_groups
from autoopt.cli.output import AsJson, example_text, exit_code, print_json, print_result
from autoopt.errors import InputError, one_line
from autoopt.json_codec import to_json
from autoopt.report.table import Table, write_table
from autoopt.report.words.failures import plain_reason
from autoopt.working_folder import working_folder

if TYPE_CHECKING:
    from autoopt.data.description import DataDescription
    from autoopt.engine.tools.apply import AppliedPass
    from autoopt.registry import PassInfo

app = typer.Typer(rich_markup_mode=None, no_args_is_help=False)
UserScript = Annotated[str | None, typer.Option(metavar="PATH", help="Python file or URL that registers passes.")]


@app.command("list", epilog=example_text("autoopt passes list"))
def list_passes(
    user_script: UserScript = None, device: TargetDevice = None, ep: TargetProvider = None, as_json: AsJson = False
) -> None:
    """List all passes by family; unavailable ones with the reason."""
    from autoopt.engine.tools.apply import described_passes
    from autoopt.passes.catalogue import pass_entry
    from autoopt.report.table import Table, write_table

    infos = described_passes(user_script, accelerator_of(device, ep))
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
    from autoopt.engine.tools.apply import described_passes
    from autoopt.passes.catalogue import pass_entry
    from autoopt.registry import registry
    from autoopt.registry.compat import answers

    infos = {info.name: info for info in described_passes(user_script, accelerator_of(device, ep))}
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
    from autoopt.passes.catalogue import new_pass

    files = list(map(str, new_pass(name, folder)))
    print_result({"pass": name, "files": files}, "\n".join(f"wrote {file}" for file in files), as_json)


def _search_text(info: PassInfo) -> str:
    """The parameters that are searched by default, or the reason why the pass is unavailable."""
    if not info.available:
        return f"unavailable: {info.missing}"
    return ", ".join(parameter.name for parameter in info.parameters if parameter.search is not None) or "-"


def _write_info(info: PassInfo) -> None:
    from autoopt.passes.catalogue import parameter_texts
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


_LOG = logging.getLogger(__name__)


def apply(  # noqa: PLR0913, PLR0917  options of the command
    name: Annotated[str, typer.Argument(metavar="PASS", help="Name or alias of a pass.", autocompletion=complete_pass)],
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The model (.onnx).")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File for the new model [default: write none].")
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option("--param", "-p", metavar="NAME=VALUE", help="A parameter; the value is JSON or plain text."),
    ] = None,
    data: Annotated[str | None, typer.Option(metavar="PATH", help="Calibration data.")] = None,
    data_root: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Folder or URL that relative paths in `data` parameters start from."),
    ] = None,
    user_script: Annotated[
        str | None, typer.Option(metavar="PATH", help="Python file or URL that registers passes.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file if it exists.")] = False,
    device: TargetDevice = None,
    ep: TargetProvider = None,
    as_json: AsJson = False,
) -> None:
    """Apply one pass to a model, after the passes that it requires.

    Session options that the pass sets are written to `OUT.session.json`, in the format of a run's session.json.
    Exit code 1 if the pass refuses the model or fails; a model that the runtime cannot load is a warning.
    """
    from autoopt.engine.tools.apply import PassFailed, PassSettings, apply_pass, check_out, write_applied
    from autoopt.spec.reader import parse_fields

    if out is not None:
        check_out(out, force=force)
    parameters = parse_fields(param or (), "--param")
    accelerator = accelerator_of(device, ep)
    with working_folder() as folder:
        try:
            options = PassSettings(data, user_script, accelerator, data_root)
            applied = apply_pass(name, model, folder, parameters, options)
        except PassFailed as error:
            _LOG.debug("%s", error)
            sys.stderr.write(one_line(plain_reason(str(error))) + "\n")
            raise typer.Exit(1) from error
        files: list[Path] = []
        if out is not None:
            files = write_applied(applied, out, accelerator, force=force)
    if applied.load_failure:
        reason = plain_reason(applied.load_failure)
        sys.stderr.write(one_line(f"warning: the runtime cannot load {out or 'the new model'}: {reason}") + "\n")
    if as_json:
        document = to_json(applied.step)
        del document["path"], document["node"]
        document |= {"repairs": list(applied.repairs), "required": list(applied.required)}
        print_json({**document, "files": list(map(str, files))})
    else:
        _show(applied, files)


def _check_text(check: Mapping[str, Any], loads: bool) -> str:
    """The result of a step's check, which goes without graph optimization. A lossy model may be far from the source."""
    if check["status"] == "not run":
        return f"no check was possible: {plain_reason(one_line(str(check.get('reason', ''))))}"
    lossy = check["tolerance"] == "lossy" and check["status"] == "same"
    text = f"checked ({check['tolerance']}): {'it runs' if lossy else check['status']}"
    if not loads:
        text += " without graph optimization only"
    if "max_abs_error" in check:
        text += f", largest difference {check['max_abs_error']:.3g}"
    if lossy and "max_relative_error" in check:
        text += f", which is {100 * check['max_relative_error']:.3g} % of the largest value"
    return f"{text} {plain_reason(one_line(check.get('reason', '')))}".rstrip()


def _show(applied: AppliedPass, files: list[Path]) -> None:
    step = applied.step
    for repair in applied.repairs:
        print(f"model: {repair}")
    if applied.required:
        print(f"first: {', '.join(applied.required)} (required by {step.pass_name})")
    print(f"{step.pass_name}: {step.outcome} in {step.seconds:.2f} s")
    if step.message:
        print(f"  {plain_reason(one_line(step.message))}")
    for attempt in step.attempts:
        changed = {name: value for name, value in attempt.params.items() if step.params.get(name) != value}
        print(f"  tried {json.dumps(changed)}: {plain_reason(one_line(attempt.reason))}")
    print(f"  parameters {json.dumps(step.params)}")
    if step.equivalence:
        print(f"  {_check_text(step.equivalence, not applied.load_failure)}")
    for name, report in step.reports.items():
        _show_report(name, report if isinstance(report, Mapping) else {"value": report})
    if step.session_options:
        print(f"  session options {json.dumps(step.session_options)}")
    for file in files:
        print(f"  wrote {file}")


def _show_report(name: str, report: Mapping[str, Any]) -> None:
    """Print the single values of a report in a line, and each list of records as a table."""
    lists = {key: value for key, value in report.items() if _is_records(value)}
    rest = {key: value for key, value in report.items() if key not in lists}
    if rest:
        print(f"  {name}: {one_line(json.dumps(rest))[:2000]}")
    for key, records in lists.items():
        columns = tuple(records[0])
        rows = tuple(tuple(_cell(record.get(column)) for column in columns) for record in records)
        write_table(Table(columns, rows, title=key), sys.stdout)


def _is_records(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)


def _cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@partial(with_option_groups, every=True)
def data(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="An ONNX model.")],
    path: Annotated[str, typer.Argument(metavar="PATH", help="Data, as for --data of the other commands.")],
    *,
    reading: DataOptions,
    as_json: AsJson = False,
) -> int:
    """Show what a model would be fed: first item, shapes, ranges, labels, and what was guessed. Runs nothing.

    The options are those of run, plan and init. Exit code 1 if the model cannot use the data.
    """
    from autoopt.problem.data_check import check_sets
    from autoopt.problem.probe import Probe, data_source
    from autoopt.problem.problem import DataSets
    from autoopt.settings import settings

    source = data_source(reading.reading().config(path, str(model)), settings().home / "downloads", digested=False)
    with Probe() as probe:
        inspection = probe.inspect(model)
        description = probe.describe(source, model.absolute())
    assert description is not None, "there is data"
    misfit = ""
    notes: list[str] = []
    try:
        notes = list(map(str, check_sets(DataSets(source), {"evaluation": description}, inspection, path)))
    except InputError as error:
        misfit = str(error)
    if as_json:
        print_json({**to_json(description), "notes": notes, "misfit": misfit})
        return exit_code(not misfit)
    inputs = ", ".join(f"{spec.name} {spec.dtype} {_shape(spec.dims)}" for spec in inspection.inputs)
    others = [f"note: {note}" for note in notes if note != f"data: {description.reading}"]
    lines = [*_lines(path, description), f"the model's inputs: {inputs}", *others]
    for line in (*lines, f"NO FIT: {misfit}") if misfit else lines:
        typer.echo(one_line(line))
    return exit_code(not misfit)


def _lines(path: str, description: DataDescription) -> Iterator[str]:
    yield f"{path}: {description.items} items{description.reading and f'; {description.reading}'}"
    for name, column in description.columns.items():
        shape = _shape(column.shape[1:] if column.stacked else column.shape)
        values = column.range and f", values {column.range}"
        yield f"{name}: {column.dtype} items of {shape}{values}; the first starts with {column.first}"
    if not description.labels:
        yield "no labels; --label NAME names their column or array"
        return
    labels = f"{description.label_kind} per item"
    if description.classes:
        labels = f"{description.classes} classes, the rarest {description.smallest_class} times"
    names = ", ".join(description.class_names[:10])
    yield f"labels: {labels}{names and f': {names}'}; the first is {description.first_label}"


def _shape(sizes: Iterable[object]) -> str:
    return "x".join("?" if size is None else str(size) for size in sizes) or "scalar"
