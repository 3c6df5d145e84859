"""The command line that repeats a run."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

Json: TypeAlias = Mapping[str, Any]

_SEARCH_OPTIONS: Final = ("trials", "minutes", "strategy", "sampler", "seed")
"""Fields of the search section that have an option of their own."""
_NAMES: Final = {"execution_provider": "ep", "label_col": "label", "labels": "label", "input_cols": "inputs"}
"""Options whose name differs from the field's."""
_LOADERS: Final = {
    "images": ("labels", "size", "scale", "mean", "std", "layout", "mode"),
    "sounds": ("labels", "scale", "sample_rate"),
}
"""Loaders of folders, with the parameters that have an option."""


class _NoOption(Exception):
    """The request holds something that no option of the command line says."""


def run_command(request: Json) -> str:
    """The command that makes the same request; empty if no command does, as for a DAG from Python."""
    dag = request.get("dag_file") or request.get("dag")
    if not isinstance(dag, str):
        return ""
    parts = [f"{name}={path}" for name, path in (request.get("parts") or {}).items()]
    try:
        return shlex.join(["autoopt", "run", *(parts or [dag]), *_sources(request, dag), *_options(request)])
    except _NoOption:
        return ""


def _sources(request: Json, dag: str) -> Iterator[str]:
    """The options for the model and the data."""
    if request.get("model") not in (None, dag):
        yield from _option("model", request["model"])
    measurement = dict(request.get("measurement") or {})
    data, calibration = request.get("data"), request.get("calibration")
    if data is not None:
        yield from _data(data)
    if "image_size" in measurement:
        yield from _option("image_size", _size(measurement.pop("image_size")))
    if measurement:
        raise _NoOption
    if calibration is not None:
        path, *others = list(_data(calibration))[1:]
        if others and others != list(_data(data))[2:]:
            raise _NoOption
        yield from _option("calibration", path)


def _options(request: Json) -> Iterator[str]:
    """The options for the goal, the proposed graph and the search."""
    for section in ("goal", "proposal_options"):
        for name, value in (request.get(section) or {}).items():
            if name in ("objectives", "constraints"):  # of a zoo
                raise _NoOption
            yield from _option(name, value)
    for name, value in (request.get("search") or {}).items():
        if name in _SEARCH_OPTIONS:
            yield from _option(name, value)
        else:
            yield from ("--search", f"{name}={value if isinstance(value, str) else json.dumps(value)}")


def _option(name: str, value: object) -> Sequence[str]:
    """An option of the command line; `name` is the field's name."""
    option = f"--{_NAMES.get(name, name).replace('_', '-')}"
    if value is True:
        return (option,)
    if value is False:
        return (option.replace("--", "--no-", 1),)
    if isinstance(value, Sequence) and not isinstance(value, str):
        value = ",".join(map(str, value))
    return (option, str(value))


def _data(config: object) -> Iterator[str]:
    """The options for a path or a data configuration."""
    if isinstance(config, str):
        yield from _option("data", config)
        return
    fields = dict(config) if isinstance(config, Mapping) else {}
    if not isinstance(fields.get("path"), str):
        raise _NoOption
    yield from _option("data", fields.pop("path"))
    for name in ("input_cols", "label_col"):
        if name in fields:
            yield from _option(name, fields.pop(name))
    loader, normalize = fields.pop("load_dataset", None), fields.pop("pre_process", None)
    if fields:
        raise _NoOption
    if loader is not None:
        yield from _folder(loader)
    if normalize is not None:
        yield from _parameters(normalize, {"normalize": ("mean", "std")})


def _folder(loader: Json) -> Iterator[str]:
    """The options for the loader of a folder."""
    params = dict(loader.get("params") or {})
    if params.get("mode") == "L":
        del params["mode"]
        yield "--grayscale"
    if "size" in params:
        yield from _option("image_size", _size(params.pop("size")))
    yield from _parameters({**loader, "params": params}, _LOADERS)


def _parameters(component: Json, known: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """The options for the parameters of a component."""
    names = known.get(str(component.get("type")), ())
    for name, value in (component.get("params") or {}).items():
        if name not in names:
            raise _NoOption
        yield from _option(name, value)


def _size(size: Sequence[int]) -> str:
    return "x".join(map(str, size))
