"""Opening a data set in a worker: load, pre-process, order, sample.

If all components but the loader are built in, the items to use are chosen before any is read, by loaders that can
count their items without reading them (they have a parameter `choose`). A user's component may look at all items.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from autoopt.data.config import BUILT_IN, Component, ComponentConfig, DataConfig, Kind, component
from autoopt.data.dataset import IGNORED, Array, Choose, DataSet, plain_labels
from autoopt.data.files import check_columns, folder_loader, loader_of_list
from autoopt.errors import AutooptError, InputError
from autoopt.model.roles import TOKEN_NAMES
from autoopt.model.roles import Kind as RoleKind
from autoopt.script import load_script

PostProcessor: TypeAlias = Callable[[list[Array]], Any]
"""Takes a model's outputs, returns predictions in the form that the metric needs."""

_LOADERS: Final[Mapping[str, str]] = {
    ".npz": "npz",
    ".npy": "npy",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".txt": "text",
    ".jsonl": "text",
}
"""Loaders by the suffix of a file."""


TABLES: Final = ("csv", "parquet")
WITH_COLUMNS: Final = ("npz", *TABLES, "text", "images", "sounds", "huggingface")
"""Loaders that take `label_col` and `input_cols`."""


def open_data(config: object, model: str | Path | None = None, roles: Mapping[str, RoleKind] | None = None) -> DataSet:
    """The data set of a config, which is anything that `DataConfig.parse` reads.

    `model` is the path of the model that the data are for, unless the config names one, and `roles` are the kinds of
    its inputs that the user gives.

    Raises:
        InputError: A missing file, an unknown component or parameter, or arrays that do not fit together.
    """
    parsed = DataConfig.parse(config)
    if parsed.user_script:
        load_script(parsed.user_script)
    choose = _chooser(parsed)
    offered = {"model": None if model is None else str(model), "roles": roles}
    data, is_chosen = _load(parsed, offered, choose)
    data = _apply("pre_process", parsed.pre_process, data, offered)
    after = next_tokens(data)
    if after is not None:
        data = replace(data, labels=after)
    if parsed.classes is not None:
        data = _with_classes(data, parsed.classes)
    return data if is_chosen else _sample(data, parsed)


def post_processor(config: DataConfig) -> PostProcessor | None:
    """The function that turns a model's outputs into predictions; None if they are used as they are."""
    if config.post_process is None:
        return None
    if config.user_script:
        load_script(config.user_script)
    function, params = component("post_process", config.post_process.type), config.post_process
    return lambda outputs: _call(function, params, outputs)


def loader_of(config: DataConfig) -> str:
    """The name of the component that loads the data.

    Raises:
        InputError: There is no such file, or its suffix says nothing.
    """
    return (config.load_dataset or _default_loader(config)).type


def as_dataset(value: object, name: str = "data") -> DataSet:
    """The result of a component as a `DataSet`; messages call it `name`.

    Raises:
        InputError: The value is not a `DataSet`, {name: array} with optional `labels`, or (arrays by name, labels).
    """
    if isinstance(value, DataSet):
        return value
    labels: Array | None = None
    if isinstance(value, tuple) and len(value) == 2:
        value, truth = value
        labels = None if truth is None else np.asarray(truth)
    if not isinstance(value, Mapping):
        raise InputError("must give a DataSet or {input name: array}", where=name)
    columns = {str(column): np.asarray(array) for column, array in value.items()}
    if "labels" in columns:
        labels = columns.pop("labels")
    return DataSet(columns, labels, name=name)


def _with_classes(data: DataSet, classes: Sequence[str]) -> DataSet:
    """Number the labels by their places among all classes.

    Raises:
        InputError: A label is not among them, or there are no labels.
    """
    if data.labels is None:
        raise InputError("needs labels in the data", where="classes")
    labels = plain_labels(data.labels)
    texts = np.array(data.classes)[labels] if data.classes else labels.astype(str)
    ids = {name: index for index, name in enumerate(classes)}
    unknown = sorted(set(texts.ravel()) - ids.keys())
    if unknown or len(ids) < len(classes):
        what = f"label {str(unknown[0])!r} of the data is missing" if unknown else "a name is there twice"
        raise InputError(what, where="classes", remedy="name each class once, in the order of the model's outputs")
    numbers = np.array([ids[text] for text in texts.ravel()], np.int64)
    return replace(data, labels=numbers.reshape(texts.shape), classes=tuple(classes))


def _apply(kind: Kind, config: ComponentConfig | None, data: DataSet, offered: Mapping[str, object]) -> DataSet:
    if config is None:
        return data
    function = component(kind, config.type)
    return as_dataset(_call(function, _with(offered, config, function), data), config.type)


def _with(offered: Mapping[str, object], config: ComponentConfig, function: Component) -> ComponentConfig:
    """The configuration with those of the offered parameters that have a value and that the component takes."""
    taken = inspect.signature(function).parameters
    added = {name: value for name, value in offered.items() if value is not None and name in taken}
    return replace(config, params={**added, **config.params})


def _chooser(config: DataConfig) -> Choose | None:
    """The choice of items that `dataloader`, `sample_ratio` and `limit` make.

    None if they use all items in their order, or if a user's component has to see the items.
    """
    if config.dataloader is None and config.sample_ratio == 1 and config.limit is None:
        return None
    for kind, chosen in config.components():
        if kind in ("pre_process", "dataloader") and chosen.type not in BUILT_IN[kind]:
            return None
    return lambda count: _sample(DataSet({"index": np.arange(count)}), config).columns["index"]


def _load(config: DataConfig, offered: Mapping[str, object], choose: Choose | None) -> tuple[DataSet, bool]:
    """The items, and True if `choose` has already been applied."""
    loader = config.load_dataset or _default_loader(config)
    params = dict(loader.params)
    if config.path is not None:
        params.setdefault("path", config.path)
    inputs = config.input_cols if isinstance(config.input_cols, dict) and loader.type not in TABLES else {}
    _add_columns(params, loader.type, replace(config, input_cols=[*inputs.values()]) if inputs else config)
    function = component("load_dataset", loader.type)
    parameters = inspect.signature(function).parameters
    can_choose = choose is not None and loader.type in BUILT_IN["load_dataset"] and "choose" in parameters
    if can_choose:
        params["choose"] = choose
    items = _call(function, _with(offered, ComponentConfig(loader.type, params), function))
    data = as_dataset(items, config.path or loader.type)
    if config.ignore_cols and loader.type not in TABLES:
        check_columns(data.columns, config.ignore_cols, data.name)
        kept = {name: array for name, array in data.columns.items() if name not in config.ignore_cols}
        data = replace(data, columns=kept)
    return _with_inputs(data, inputs), can_choose


def _with_inputs(data: DataSet, inputs: Mapping[str, str]) -> DataSet:
    """Name columns after the model's inputs that they are for."""
    if not inputs:
        return data
    named = {name: data.columns[column] for name, column in inputs.items() if column in data.columns}
    uneven = {name: data.uneven[column] for name, column in inputs.items() if column in data.uneven}
    return replace(data, columns=named or data.columns, uneven=uneven)


def _add_columns(params: dict[str, object], loader: str, config: DataConfig) -> None:
    """Pass `label_col`, `input_cols` and, for a table, `ignore_cols` on to the loader."""
    if loader in TABLES and config.ignore_cols is not None:
        params["ignore_cols"] = config.ignore_cols
    for field, value in (("label_col", config.label_col), ("input_cols", config.input_cols)):
        if value is None:
            continue
        if loader not in WITH_COLUMNS:
            loaders = ", ".join(WITH_COLUMNS)
            raise InputError(f"{field} applies to {loaders}, not to {loader}", where=str(config.path or loader))
        params.setdefault(field, value)


def _default_loader(config: DataConfig) -> ComponentConfig:
    """The loader for the path or the Hugging Face shorthand."""
    if config.data_name is not None:
        names = ("data_name", "subset", "split")
        return ComponentConfig("huggingface", {name: getattr(config, name) for name in names})
    path = Path(config.path or "")
    if path.is_dir():
        has_tensors = any(path.glob("test_data_set_*")) or any(path.glob("input_*.pb"))
        return ComponentConfig("onnx_test_data" if has_tensors else folder_loader(path))
    if not path.is_file():
        raise InputError("no such data file or folder", where=str(path))
    suffix = path.suffix.lower()
    if suffix not in _LOADERS:
        raise InputError(
            f"cannot tell what kind of data {path.suffix or 'this'} is",
            where=str(path),
            remedy=f"name it with load_dataset, or use one of {', '.join(_LOADERS)} or a folder",
        )
    inputs = list(config.input_cols.values()) if isinstance(config.input_cols, dict) else config.input_cols
    return ComponentConfig(loader_of_list(path, inputs) or _LOADERS[suffix])


def _call(function: Component, config: ComponentConfig, *arguments: object) -> object:
    where = f"data component {config.type!r}"
    try:
        inspect.signature(function).bind(*arguments, **config.params)
    except TypeError as error:
        raise InputError(f"{error}", where=where) from error
    try:
        return function(*arguments, **config.params)
    except (AutooptError, MemoryError):
        raise
    except Exception as error:  # the user's own function, or parameters that do not fit the data
        raise InputError(f"{type(error).__name__}: {error}", where=where) from error


def _sample(data: DataSet, config: DataConfig) -> DataSet:
    """The items that `dataloader`, `sample_ratio` and `limit` leave."""
    data = _apply("dataloader", config.dataloader, data, {})
    count = max(1, round(len(data) * config.sample_ratio))
    if count < len(data):
        data = data.take(np.unique(np.linspace(0, len(data) - 1, count).round().astype(int)))
    if config.limit is not None and config.limit < len(data):
        data = data.take(np.arange(config.limit))
    return data


def next_tokens(data: DataSet) -> Array | None:
    """The labels of a language model: the token after each position, and `IGNORED` where there is none.

    Labels that repeat the tokens, as Hugging Face's models take them, are moved by one position; labels that are the
    next tokens already stay.

    Returns:
        (items, positions); None for labels of any other kind.
    """
    labels = data.labels
    tokens = next((data.columns[name] for name in TOKEN_NAMES if name in data.columns), None)
    if labels is None or tokens is None or labels.dtype.kind not in "iu" or labels.shape != tokens.shape:
        return None
    if labels.ndim != 2 or labels.shape[1] < 2:
        return None
    if _repeats(labels, tokens):
        return np.pad(labels[:, 1:].astype(np.int64), ((0, 0), (0, 1)), constant_values=IGNORED)
    return labels if _repeats(labels[:, :-1], tokens[:, 1:]) else None


def _repeats(labels: Array, tokens: Array) -> bool:
    """True if all labels that count, and there are some, equal the tokens at their positions."""
    counted = labels != IGNORED
    return bool(counted.any() and np.all(labels[counted] == tokens[counted]))
