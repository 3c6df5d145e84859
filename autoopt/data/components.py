"""The registry of data components: built in, or decorated functions of a user script.

@register_load_dataset("mine")   # (**params) -> DataSet, {name: array} with optional "labels", or (arrays, labels)
@register_pre_process("mine")    # (DataSet, **params) -> DataSet
@register_dataloader("mine")     # (DataSet, **params) -> DataSet: orders, samples, repeats
@register_post_process("mine")   # (list of outputs, **params) -> predictions
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, TypeVar

from autoopt.errors import InputError, did_you_mean

Kind: TypeAlias = Literal["load_dataset", "pre_process", "post_process", "dataloader"]
Taken = TypeVar("Taken", bound=Callable[..., Any])

# kind -> name -> dotted name of the function. One line a component.
BUILT_IN: Mapping[Kind, Mapping[str, str]] = {
    "load_dataset": {
        "npz": "autoopt.data.sources.arrays:load_npz",
        "npy": "autoopt.data.sources.arrays:load_npy",
        "onnx_test_data": "autoopt.data.sources.onnx_test_data:load",
        "csv": "autoopt.data.sources.tables:load_csv",
        "parquet": "autoopt.data.sources.tables:load_parquet",
        "images": "autoopt.data.sources.images:load",
        "text": "autoopt.data.sources.text:load",
        "huggingface": "autoopt.data.sources.huggingface:load",
        "synthetic": "autoopt.data.sources.synthetic:load",
    },
    "pre_process": {
        "select": "autoopt.data.steps:select",
        "rename": "autoopt.data.steps:rename",
        "cast": "autoopt.data.steps:cast",
        "normalize": "autoopt.data.steps:normalize",
        "transpose": "autoopt.data.steps:transpose",
        "reshape": "autoopt.data.steps:reshape",
        "tokenize": "autoopt.data.sources.text:tokenize",
    },
    "post_process": {
        "argmax": "autoopt.data.steps:argmax",
        "softmax": "autoopt.data.steps:softmax",
        "sigmoid": "autoopt.data.steps:sigmoid",
        "output": "autoopt.data.steps:output",
        "threshold": "autoopt.data.steps:threshold",
    },
    "dataloader": {
        "default": "autoopt.data.steps:in_order",
        "shuffle": "autoopt.data.steps:shuffle",
        "first": "autoopt.data.steps:first",
    },
}


@dataclass
class _Registered:
    functions: dict[tuple[str, str], Callable[..., Any]] = field(default_factory=dict)


_registered = _Registered()


def component(kind: Kind, name: str) -> Callable[..., Any]:
    """The function registered as that kind of component.

    Raises:
        InputError: there is none; names the nearest.
    """
    if (kind, name) in _registered.functions:
        return _registered.functions[kind, name]
    if name not in BUILT_IN[kind]:
        known = [*BUILT_IN[kind], *(n for k, n in _registered.functions if k == kind)]
        raise InputError(f"unknown {kind} {name!r}", remedy=did_you_mean(name, known) or f"known: {', '.join(known)}")
    module, _, attribute = BUILT_IN[kind][name].partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
    return found


def _register(kind: Kind, name: str) -> Callable[[Taken], Taken]:
    def decorate(function: Taken) -> Taken:
        known = _registered.functions.get((kind, name))
        same_place = known is not None and known.__code__.co_filename == function.__code__.co_filename
        if name in BUILT_IN[kind] or (known is not None and not same_place):
            raise InputError(f"{kind} {name!r} is registered twice")
        _registered.functions[kind, name] = function
        return function

    return decorate


def register_load_dataset(name: str) -> Callable[[Taken], Taken]:
    """Make a function known as a loader of data sets."""
    return _register("load_dataset", name)


def register_pre_process(name: str) -> Callable[[Taken], Taken]:
    """Make a function known as a step that makes items model-ready."""
    return _register("pre_process", name)


def register_post_process(name: str) -> Callable[[Taken], Taken]:
    """Make a function known as a step that makes predictions of a model's outputs."""
    return _register("post_process", name)


def register_dataloader(name: str) -> Callable[[Taken], Taken]:
    """Make a function known as a step that orders and samples items."""
    return _register("dataloader", name)
