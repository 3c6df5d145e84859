"""Groups of options that several commands share: the goal, the proposal for a bare model, the target of a pass."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import asdict, dataclass, fields, is_dataclass
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, TypeVar, get_type_hints

import typer

from autoopt.cli.completion import complete_metric
from autoopt.json_codec import without_nulls

if TYPE_CHECKING:
    from autoopt.problem.goal import GoalOptions
    from autoopt.problem.run_request import RunRequest
    from autoopt.spec.proposal_options import ProposalOptions
    from autoopt.target import Accelerator


BARE_MODEL: Final = "Options for a model without a dag.yaml"
GOAL: Final = "Goal"
TargetDevice = Annotated[
    str | None, typer.Option("--device", metavar="NAME", help="Device of the target: cpu (default), gpu or npu.")
]
TargetProvider = Annotated[
    str | None,
    typer.Option(
        "--ep",
        "--execution-provider",
        metavar="NAME",
        help="Execution provider of the target: cpu, cuda, tensorrt, ...",
    ),
]
Fields = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="FIELD=VALUE",
        help="Set a field of dag.yaml, such as search.sampler=tpe or search.seed=7; may be repeated. For a bare model "
        "also level=0..3 (0: lossless passes, 3: all), fidelity=true (accept lossy models that are close on generated "
        "inputs), keep_signature=true, target.device=gpu, target.memory=BYTES.",
    ),
]
Runtimes = Annotated[
    list[str] | None,
    typer.Option(
        "--runtime",
        metavar="PYTHON",
        help="Another interpreter whose onnxruntime is tried too; repeat it for several.",
    ),
]
Result = TypeVar("Result")


def with_set_fields(request: RunRequest, assignments: list[str] | None) -> RunRequest:
    """The request with the fields of `--set`.

    Raises:
        InputError: an assignment is malformed, or a field is unknown or has a wrong value.
    """
    if not assignments:
        return request
    from autoopt.problem.run_request import with_fields
    from autoopt.spec.reader import parse_fields

    return with_fields(request, parse_fields(assignments))


def interpreters(given: Sequence[str] | None) -> tuple[str, ...]:
    """The interpreters that an option names, as absolute paths: links stay, because they tell the environment."""
    return tuple(os.path.abspath(Path(python).expanduser()) for python in given or ())


def accelerator_of(device: str | None, execution_provider: str | None) -> Accelerator:
    """The device and execution provider that passes are described for and run for, with this machine's CPU features.

    Raises:
        InputError: one of them is unknown.
    """
    from autoopt.problem.environment import cpu
    from autoopt.spec.proposal_options import ProposalOptions

    target = ProposalOptions(device=device, execution_provider=execution_provider).target()
    return target.accelerator(frozenset(cpu()["flags"]))


@dataclass(frozen=True)
class ProposalFlags:
    """Options of the commands that propose a graph for a bare model, as given; None for those that are not."""

    panel: ClassVar = BARE_MODEL
    precision: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="fp32, fp16, mixed, int8 or int4 [default: all that suit the target]."),
    ] = None
    execution_provider: Annotated[
        str | None,
        typer.Option(
            "--ep", metavar="NAME", help="Execution provider, such as cpu, cuda, openvino; all finds the fastest."
        ),
    ] = None
    runtimes: Runtimes = None
    threads: Annotated[
        str | None,
        typer.Option(
            metavar="N,...",
            help="Intra-op threads: a number, all, or several to search, such as 1,2,all [default: searched].",
        ),
    ] = None

    def options(self) -> ProposalOptions:
        """The options as the engine takes them.

        Raises:
            InputError: an unknown precision, or wrong threads.
        """
        # Imported only now: it loads pydantic, which --help does not need.
        from autoopt.spec.proposal_options import ProposalOptions

        given = {**asdict(self), "runtimes": interpreters(self.runtimes)}
        return ProposalOptions.from_json(without_nulls(given))


def with_option_groups(
    command: Callable[..., Result], *, every: bool = False, hidden: Sequence[str] = ()
) -> Callable[..., Result]:
    """Give a command one option for each field of its parameters that are dataclasses.

    Typer reads options from a flat signature. The command itself receives the dataclasses. Their class variables name
    the title of the options on the help page (`panel`) and those that are listed there only with `every` (`hidden`).
    `hidden` names further options that the help page does not list.
    """
    # Annotations are text here; Typer would look up their names in the wrong module.
    described = signature(command, eval_str=True)
    parameters = list(described.parameters.values())
    groups: dict[str, Any] = {
        parameter.name: parameter.annotation for parameter in parameters if is_dataclass(parameter.annotation)
    }

    @wraps(command)
    def flat_command(**values: Any) -> Result:  # noqa: ANN401  options of any type
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        return command(**values)

    options: list[Parameter] = []
    for parameter in parameters:
        if parameter.name in groups:
            options.extend(_options(parameter.annotation, every))
        elif parameter.name in hidden:
            options.append(parameter.replace(annotation=_shown_as(parameter.annotation, hidden=True)))
        else:
            options.append(parameter)
    flat_command.__signature__ = described.replace(parameters=options)  # type: ignore[attr-defined]
    flat_command.__annotations__ = {option.name: option.annotation for option in options}
    return flat_command


def _options(group: type, every: bool) -> Iterator[Parameter]:
    """A parameter for each field of a dataclass; all its fields have defaults."""
    hints = get_type_hints(group, include_extras=True)
    for field in fields(group):
        is_hidden = not every and field.name in getattr(group, "hidden", ())
        kind = _shown_as(hints[field.name], rich_help_panel=getattr(group, "panel", None), hidden=is_hidden)
        yield Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=kind)


def _shown_as(annotation: Any, **looks: object) -> Any:  # noqa: ANN401  a type, perhaps with an option
    """The same type with an option that looks differently; other commands have the option as it was."""
    if not hasattr(annotation, "__metadata__"):
        return annotation
    option = copy(annotation.__metadata__[0])
    vars(option).update(looks)
    return Annotated[annotation.__origin__, option]


@dataclass(frozen=True)
class GoalFlags:
    """The options as given; None for those that are not."""

    panel: ClassVar = GOAL
    metric: Annotated[
        str | None,
        typer.Option(
            "--metric",
            metavar="NAME",
            help="Quality metric to keep [default: by the labels].",
            autocompletion=complete_metric,
        ),
    ] = None
    max_drop: Annotated[
        float | None, typer.Option(min=0, help="Largest accepted drop in the quality metric [default: 0.01].")
    ] = None
    minimize: Annotated[
        Literal["latency", "size", "memory"] | None, typer.Option(help="What to minimize [default: latency].")
    ] = None

    def options(self) -> GoalOptions:
        """The options as the engine takes them."""
        # Imported only now: it loads the search, which --help does not need.
        from autoopt.problem.goal import GoalOptions

        return GoalOptions(self.minimize, self.metric, self.max_drop)
