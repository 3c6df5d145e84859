"""The registry of data components: built in, or decorated functions of a user script.

@register_load_dataset("mine")   # (**params) -> DataSet, {name: array} with optional "labels", or (arrays, labels)
@register_pre_process("mine")    # (DataSet, **params) -> DataSet
@register_dataloader("mine")     # (DataSet, **params) -> DataSet: orders, samples, repeats
@register_post_process("mine")   # (list of outputs, **params) -> predictions
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias, TypeVar

from autoopt.errors import InputError, did_you_mean

Kind: TypeAlias = Literal["load_dataset", "pre_process", "post_process", "dataloader"]
Component: TypeAlias = Callable[..., object]
"""Its arguments are the parameters in the config, and its result depends on the kind."""
Function = TypeVar("Function", bound=Component)

BUILT_IN: Mapping[Kind, Mapping[str, str]] = {
    "load_dataset": {
        "npz": "autoopt.data.sources.arrays:load_npz",
        "npy": "autoopt.data.sources.arrays:load_npy",
        "onnx_test_data": "autoopt.data.sources.arrays:load_onnx_test_data",
        "csv": "autoopt.data.sources.tables:load_csv",
        "parquet": "autoopt.data.sources.tables:load_parquet",
        "images": "autoopt.data.sources.images:load",
        "sounds": "autoopt.data.sources.sounds:load",
        "text": "autoopt.data.sources.text:load",
        "huggingface": "autoopt.data.sources.huggingface:load",
        "synthetic": "autoopt.data.sources.synthetic:load",
    },
    "pre_process": {
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
        "yolo_boxes": "autoopt.data.decoding.boxes:yolo_boxes",
        "yolox_boxes": "autoopt.data.decoding.boxes:yolox_boxes",
        "ssd_boxes": "autoopt.data.decoding.boxes:ssd_boxes",
        "ctc_greedy": "autoopt.data.decoding.ctc:ctc_greedy",
    },
    "dataloader": {
        "default": "autoopt.data.steps:in_order",
        "shuffle": "autoopt.data.steps:shuffle",
    },
}
"""The dotted name of each built-in function, by kind and name; they are imported when they are first used."""

_registered: dict[tuple[Kind, str], Component] = {}
"""The functions of user scripts."""


def component(kind: Kind, name: str) -> Component:
    """The component of a kind with a name.

    Raises:
        InputError: There is no such component; the message names the nearest one.
    """
    if (kind, name) in _registered:
        return _registered[kind, name]
    if name not in BUILT_IN[kind]:
        raise unknown_component(kind, name)
    module, _, attribute = BUILT_IN[kind][name].partition(":")
    function: Component = getattr(importlib.import_module(module), attribute)
    return function


def unknown_component(kind: Kind, name: str) -> InputError:
    """The error for a name that no component of the kind has; it names the nearest one."""
    names = [*BUILT_IN[kind], *(other for of_kind, other in _registered if of_kind == kind)]
    return InputError(f"unknown {kind} {name!r}", remedy=did_you_mean(name, names) or f"known: {', '.join(names)}")


def register_load_dataset(name: str) -> Callable[[Function], Function]:
    """Register a function that loads a data set."""
    return _register("load_dataset", name)


def register_pre_process(name: str) -> Callable[[Function], Function]:
    """Register a function that makes items model-ready."""
    return _register("pre_process", name)


def register_post_process(name: str) -> Callable[[Function], Function]:
    """Register a function that turns a model's outputs into predictions."""
    return _register("post_process", name)


def register_dataloader(name: str) -> Callable[[Function], Function]:
    """Register a function that orders and samples items."""
    return _register("dataloader", name)


def _register(kind: Kind, name: str) -> Callable[[Function], Function]:
    def decorate(function: Function) -> Function:
        other = _registered.get((kind, name))
        # A worker that reads the same script again registers its functions again.
        is_reload = other is not None and other.__code__.co_filename == function.__code__.co_filename
        if name in BUILT_IN[kind] or (other is not None and not is_reload):
            raise InputError(f"{kind} {name!r} is registered twice")
        _registered[kind, name] = function
        return function

    return decorate
