"""`autoopt init`, `plan`, `import-olive`: a dag.yaml for a model or from Olive, its chains and what was pruned."""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import autoopt
from autoopt.cli.data_options import Calibration, Data, DataOptions, DataRoot, request_of
from autoopt.cli.option_groups import Fields, GoalFlags, ProposalFlags, with_option_groups, with_set_fields
from autoopt.cli.output import AsJson, print_json, print_result
from autoopt.cli.run import DagOrModels
from autoopt.errors import InputError, writing
from autoopt.report.words.markup import shell_word
from autoopt.settings import settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from autoopt.json_codec import JsonValue
    from autoopt.problem.run_request import RunRequest

EXAMPLES = Path(autoopt.__file__).parent / "dags"


@with_option_groups
def init(  # noqa: PLR0913  options of the command
    model: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODEL",
            help="An ONNX model, a folder of models, or several that belong together: NAME=MODEL NAME=MODEL.",
            show_default=False,
        ),
    ] = None,
    *,
    data: Data = None,
    calibration: Calibration = None,
    reading: DataOptions,
    goal: GoalFlags,
    proposal: ProposalFlags,
    assignments: Fields = None,
    examples: Annotated[
        bool, typer.Option("--examples", help="Copy example DAGs, with a small model and its data, into a new folder.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="File to write [default: <model>.yaml], or folder of the examples [dags]."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file if it exists.")] = False,
    as_json: AsJson = False,
) -> None:
    """Propose a DAG for a model and write it as YAML, with comments, ready to edit and to run.

    For several models, it is proposed for the largest of them.
    """
    from autoopt.dag.proposal.dag_yaml import yaml_text
    from autoopt.problem.resolve import largest_part, propose_dag

    if examples:
        _copy_examples(model or [], out or Path("dags"), as_json)
        return
    if not model:
        raise InputError("name a model", where="MODEL", remedy="or copy examples with --examples")
    asked = request_of(model, reading, data, calibration)
    if asked.measurement:
        raise InputError("needs --data", where="--image-size")
    request = replace(asked, proposal_options=proposal.options(), goal=goal.options())
    request = with_set_fields(request, assignments)
    if request.search or request.measurement:
        raise InputError("a field of the search or measurement", where="--set", remedy="write it into the new file")
    # A written DAG generates no data, so it does not say how to judge models on it.
    options = replace(request.proposal_options, fidelity=bool(request.proposal_options.fidelity))
    draft = propose_dag(replace(request, proposal_options=options))
    folder = out.parent if out is not None else Path()
    models = _models_in_file(model[0], request, folder)
    fields = _data_in_file(request, draft.state, folder)
    text = yaml_text(draft.proposal, draft.plan, models, fields, draft.objectives, draft.constraints)
    file = out or Path(f"{draft.proposal.spec.name}.yaml")
    write_file(file, f"{schema_line(folder)}\n{text}", force)
    plan = draft.plan
    if as_json:
        print_json({**plan.to_json(limit=100), "file": str(file), "dag": file.stem})
        return
    if request.parts:
        typer.echo(f"passes: those for {largest_part(request.parts)}, the largest model; a run tries them on each")
    for decision in plan.decisions:
        typer.echo(f"{decision.what}: {decision.why}")
    for preference in plan.learned:
        typer.echo(f"learned: {preference.text}")
    typer.echo(f"wrote {file}: {plan.chain_count} chains, {plan.point_count} points of {plan.points_before}")
    typer.echo(f"next: autoopt plan {shell_word(file)}; autoopt run {shell_word(file)}")


def _copy_examples(models: list[str], out: Path, as_json: bool) -> None:
    """Copy the example DAGs into a new folder, with a small CNN for handwritten digits and its labelled data."""
    if models:
        raise InputError("has no use with --examples", where=models[0], remedy="omit one of them")
    if out.exists():
        raise InputError("already exists", where=str(out), remedy="name another folder with -o")
    with writing(out):
        shutil.copytree(EXAMPLES, out)
    files = sorted(map(str, out.glob("*.yaml")))
    text = "\n".join([*(f"wrote {file}" for file in files), f"next: autoopt run {shell_word(out / 'quickstart.yaml')}"])
    print_result({"folder": str(out), "files": files}, text, as_json)


def _models_in_file(named: str, request: RunRequest, folder: Path) -> JsonValue:
    """The models of a request as they are written into a file in `folder`; an archive stays one."""
    from autoopt.model.packaged_models import is_archive

    if request.parts and not is_archive(named):
        return {name: path_in_file(path, folder) for name, path in request.parts.items()}
    return path_in_file(named if is_archive(named) else str(request.dag), folder)


def _data_in_file(request: RunRequest, state: Mapping[str, JsonValue], folder: Path) -> dict[str, JsonValue]:
    """The data of a request as they are written into a file in `folder`, those of one model with its own state."""
    fields: dict[str, JsonValue] = {}
    for use, source in (("evaluation", request.data), ("calibration", request.calibration)):
        if isinstance(source, dict):
            fields[use] = {**source, "path": path_in_file(str(source["path"]), folder)}
        elif source is not None:
            fields[use] = path_in_file(str(source), folder)
    if state and not request.parts:
        config = fields["evaluation"]
        fields["evaluation"] = {**(config if isinstance(config, dict) else {"path": config}), **state}
    return fields


@with_option_groups
def plan(  # noqa: PLR0913  options of the command
    dag: DagOrModels,
    *,
    model: Annotated[str | None, typer.Option(metavar="MODEL", help="Plan for this ONNX model.")] = None,
    data: Data = None,
    calibration: Calibration = None,
    reading: DataOptions,
    goal: GoalFlags,
    data_root: DataRoot = None,
    proposal: ProposalFlags,
    assignments: Fields = None,
    limit: Annotated[
        int, typer.Option(min=0, help="Maximum number of chains to list; counts include all of them.")
    ] = 100,
    as_json: AsJson = False,
) -> None:
    """Show the chains of a DAG, their points, and what was pruned and why. Runs nothing.

    For a bare model, the DAG is the one that autoopt proposes; --verbose lists its chains and all reasons. Several
    targets, or models that belong together, have a plan each.
    """
    from autoopt.cli.output import is_verbose
    from autoopt.dag.compiler.rendering import summary_text, tree_text
    from autoopt.problem.resolve import make_plans

    asked = request_of(dag, reading, data, calibration, model)
    request = replace(asked, proposal_options=proposal.options(), goal=goal.options(), data_root=data_root)
    plans = make_plans(with_set_fields(request, assignments))
    limit = min(limit, sys.maxsize)
    if as_json:
        print_json(plans.to_json(limit))
        return
    for sentence in plans.runtimes:
        sys.stdout.write(f"{sentence}\n")
    for number, (name, plan) in enumerate(plans.by_name.items()):
        if number:
            sys.stdout.write("\n")
        if plans.kind:
            sys.stdout.write(f"{plans.kind} {name}\n")
        if plan.decisions and not is_verbose():
            sys.stdout.write(summary_text(plan))
        else:
            sys.stdout.write(tree_text(plan, limit))


def import_olive(
    config: Annotated[
        Path,
        typer.Argument(metavar="CONFIG", help="Olive's configuration (JSON or YAML).", exists=True, dir_okay=False),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File to write [default: the name in the configuration].")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file if it exists.")] = False,
    as_json: AsJson = False,
) -> None:
    """Convert an Olive configuration into a dag.yaml, and list what has no equivalent.

    Converts passes, search values and strategy, the goals of the evaluator, data configs and systems.
    """
    from autoopt.dag.proposal.dag_yaml import document_yaml
    from autoopt.olive import convert
    from autoopt.report.words.markup import shell_word

    folder = out.parent if out is not None else Path()
    conversion = convert(config, folder)
    file = out or Path(f"{conversion.dag['name']}.yaml")
    head = [schema_line(folder), f"# Converted from Olive's {config.name}."]
    head += [f"# {remark}" for remark in conversion.remarks]
    write_file(file, "\n".join(head) + "\n" + document_yaml(conversion.dag), force)
    if as_json:
        print_json({"file": str(file), "dag": conversion.dag, "remarks": list(conversion.remarks)})
        return
    for remark in conversion.remarks:
        typer.echo(remark)
    typer.echo(f"wrote {file}; next: autoopt plan {shell_word(file)}")


def dag_schema(*, with_passes: bool = True) -> str:
    """The JSON Schema of dag.yaml as text; if wanted, with the passes of this installation."""
    from autoopt.measure.settings import SETTINGS
    from autoopt.registry import registry
    from autoopt.spec.dag import DagSpec
    from autoopt.spec.json_schema import json_schema

    infos = []
    if with_passes:
        passes = registry()
        infos = list(map(passes.info, passes.names()))
    return _text(json_schema(DagSpec, infos, SETTINGS))


def zoo_schema() -> str:
    """The JSON Schema of zoo.yaml as text."""
    from autoopt.spec.json_schema import json_schema
    from autoopt.spec.zoo import ZooSpec

    return _text(json_schema(ZooSpec))


def _text(document: object) -> str:
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def schema_line(folder: Path = Path()) -> str:
    """Write both schemas next to the store; returns the comment that names that of dag.yaml for a file in `folder`."""
    home = settings().home
    home.mkdir(parents=True, exist_ok=True)
    file = home / "dag.schema.json"
    write_file(file, dag_schema(), force=True)
    write_file(home / "zoo.schema.json", zoo_schema(), force=True)
    return f"# yaml-language-server: $schema={path_in_file(str(file), folder)}"


def path_in_file(path: str, folder: Path = Path()) -> str:
    """A path to write into a file in `folder`: relative if it lies below the current folder, absolute elsewhere."""
    if "://" in path:
        return path
    absolute = Path(path).expanduser().absolute()
    if absolute.is_relative_to(Path.cwd()):
        return os.path.relpath(absolute, folder)
    return str(absolute)


def write_file(file: Path, text: str, force: bool) -> None:
    """Write a file; overwrite an existing one only with `force`.

    Raises:
        InputError: the file exists, or the folder cannot be written.
    """
    with writing(file):
        if file.exists() and not force:
            raise InputError("already exists", where=str(file), remedy="use --force to overwrite it")
        file.write_text(text, encoding="utf-8")
