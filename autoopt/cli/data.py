"""`autoopt data`: what a model would be fed, before a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autoopt.cli.data_options import DataOptions
from autoopt.cli.option_groups import with_option_groups
from autoopt.cli.output import AsJson, exit_code, print_json
from autoopt.errors import InputError, one_line
from autoopt.json_codec import to_json

if TYPE_CHECKING:
    from autoopt.data.description import DataDescription


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
    from autoopt.problem.described_data import DescribedData, data_source
    from autoopt.problem.probe import Probe
    from autoopt.settings import settings

    source = data_source(reading.reading().config(path, str(model)), settings().home / "downloads", digested=False)
    with Probe() as probe:
        inspection = probe.inspect(model)
        description = probe.describe(source, model.absolute())
    assert description is not None, "there is data"
    misfit = ""
    notes: list[str] = []
    try:
        described = DescribedData(descriptions=[(source, description)])
        notes = list(map(str, described.checked(inspection, path, {}, has_script=False).notes))
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
