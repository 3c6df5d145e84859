"""Opening a data set in a worker: load, pre-process, order, sample.

What order and sample leave is chosen before anything is read where the loader can count its items without reading them
(it takes a parameter `choose`), and where all other components are built in, so that none looks at all items at once.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from autoopt.data.components import BUILT_IN, Kind, component
from autoopt.data.config import ComponentConfig, DataConfig
from autoopt.data.dataset import Array, Choose, DataSet
from autoopt.errors import AutooptError, InputError
from autoopt.script import load_script

_BY_SUFFIX: Mapping[str, str] = {
    ".npz": "npz",
    ".npy": "npy",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".txt": "text",
    ".jsonl": "text",
}


def open_data(config: DataConfig | str | Mapping[str, Any], model: str | Path | None = None) -> DataSet:
    """The data set of a config. `model` is a path; synthetic data takes the inputs of that model where the config
    names none.

    Raises:
        InputError: a missing file, an unknown component or parameter, arrays that do not fit together.
    """
    parsed = DataConfig.parse(config)
    if parsed.user_script:
        load_script(parsed.user_script)
    choose = _chooser(parsed)
    data, is_chosen = _load(parsed, model, choose)
    data = _step("pre_process", parsed.pre_process, data)
    return data if is_chosen else _sample(data, parsed)


def post_processor(config: DataConfig) -> Callable[[list[Any]], Any] | None:
    """The function that makes predictions of a model's outputs, or None where they are taken as they are."""
    chosen = config.post_process
    if chosen is None:
        return None
    if config.user_script:
        load_script(config.user_script)
    function = component("post_process", chosen.type)
    return lambda outputs: _call(function, chosen, outputs)


def as_dataset(value: Any, name: str = "data") -> DataSet:
    """What a component returned as a `DataSet`: one already, {name: array} with optional `labels`, or a pair of them.

    Raises:
        InputError: none of these.
    """
    if isinstance(value, DataSet):
        return value
    labels: Array | None = None
    if isinstance(value, tuple) and len(value) == 2:
        value, labels = value[0], None if value[1] is None else np.asarray(value[1])
    if not isinstance(value, Mapping):
        raise InputError("must give a DataSet or {input name: array}", where=name)
    columns = {str(n): np.asarray(a) for n, a in value.items() if n != "labels"}
    if "labels" in value:
        labels = np.asarray(value["labels"])
    return DataSet(columns, labels, name=name)


def _step(kind: Kind, chosen: ComponentConfig | None, data: DataSet) -> DataSet:
    return data if chosen is None else as_dataset(_call(component(kind, chosen.type), chosen, data), chosen.type)


def _chooser(config: DataConfig) -> Choose | None:
    """The numbers of the items that are used, in their order, by how many there are; None where that takes the items,
    or where all are used as they come."""
    if config.dataloader is None and config.sample_ratio == 1 and config.limit is None:
        return None
    steps: tuple[tuple[Kind, ComponentConfig | None], ...] = (
        ("pre_process", config.pre_process),
        ("dataloader", config.dataloader),
    )
    if any(chosen is not None and chosen.type not in BUILT_IN[kind] for kind, chosen in steps):
        return None
    return lambda count: _sample(DataSet({"number": np.arange(count)}), config).columns["number"]


def _load(config: DataConfig, model: str | Path | None, choose: Choose | None) -> tuple[DataSet, bool]:
    """The items, and whether they are the chosen ones already."""
    chosen = config.load_dataset or _by_path(config)
    params = dict(chosen.params)
    if config.path is not None:
        params.setdefault("path", config.path)
    function = component("load_dataset", chosen.type)
    known = inspect.signature(function).parameters
    if model is not None and "model" in known:
        params.setdefault("model", str(model))
    can_choose = choose is not None and chosen.type in BUILT_IN["load_dataset"] and "choose" in known
    if can_choose:
        params["choose"] = choose
    loaded = _call(function, ComponentConfig(type=chosen.type, params=params))
    return as_dataset(loaded, config.path or chosen.type), can_choose


def _by_path(config: DataConfig) -> ComponentConfig:
    if config.data_name is not None:
        keys = ("data_name", "subset", "split", "input_cols", "label_col")
        return ComponentConfig(type="huggingface", params={k: getattr(config, k) for k in keys})
    path = Path(config.path or "")
    if path.is_dir():
        tests = any(path.glob("test_data_set_*")) or any(path.glob("input_*.pb"))
        return ComponentConfig(type="onnx_test_data" if tests else "images")
    if not path.is_file():
        raise InputError("no such data file or folder", where=str(path))
    kind = _BY_SUFFIX.get(path.suffix.lower())
    if kind is None:
        raise InputError(
            f"cannot tell what kind of data {path.suffix or 'this'} is",
            where=str(path),
            remedy=f"name it with load_dataset, or use one of {', '.join(_BY_SUFFIX)} or a folder",
        )
    return ComponentConfig(type=kind)


def _call(function: Callable[..., Any], chosen: ComponentConfig, *args: Any) -> Any:
    try:
        inspect.signature(function).bind(*args, **chosen.params)
    except TypeError as error:
        raise InputError(f"{error}", where=f"data component {chosen.type!r}") from error
    try:
        return function(*args, **chosen.params)
    except (AutooptError, MemoryError):
        raise
    except Exception as error:  # the user's own function, or parameters that do not fit the data
        raise InputError(f"{type(error).__name__}: {error}", where=f"data component {chosen.type!r}") from error


def _sample(data: DataSet, config: DataConfig) -> DataSet:
    """What `dataloader`, `sample_ratio` and `limit` leave."""
    data = _step("dataloader", config.dataloader, data)
    count = len(data)
    wanted = max(1, round(count * config.sample_ratio))
    if wanted < count:
        data = data.take(np.unique(np.linspace(0, count - 1, wanted).round().astype(int)))
    if config.limit is not None and config.limit < len(data):
        data = data.take(np.arange(config.limit))
    return data
