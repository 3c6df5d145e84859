"""The data config as written in dag.yaml, and the components that it may name: built in, or decorated functions.

@register_load_dataset("mine")   # (**params) -> DataSet, {name: array} with optional "labels", or (arrays, labels)
@register_pre_process("mine")    # (DataSet, **params) -> DataSet
@register_dataloader("mine")     # (DataSet, **params) -> DataSet: orders, samples, repeats
@register_post_process("mine")   # (list of outputs, **params) -> predictions
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Final, Literal, TypeAlias, TypeVar

from autoopt.errors import InputError, did_you_mean
from autoopt.json_codec import JsonTypeError, from_json, to_json

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
        "images": "autoopt.data.sources.media:load_images",
        "sounds": "autoopt.data.sources.media:load_sounds",
        "text": "autoopt.data.sources.tables:load_text",
        "huggingface": "autoopt.data.sources.tables:load_huggingface",
        "synthetic": "autoopt.data.sources.synthetic:load",
    },
    "pre_process": {
        "cast": "autoopt.data.steps:cast",
        "normalize": "autoopt.data.steps:normalize",
        "transpose": "autoopt.data.steps:transpose",
        "reshape": "autoopt.data.steps:reshape",
        "tokenize": "autoopt.data.steps:tokenize",
    },
    "post_process": {
        "argmax": "autoopt.data.steps:argmax",
        "softmax": "autoopt.data.steps:softmax",
        "sigmoid": "autoopt.data.steps:sigmoid",
        "output": "autoopt.data.steps:output",
        "threshold": "autoopt.data.steps:threshold",
        "yolo_boxes": "autoopt.data.boxes:yolo_boxes",
        "yolox_boxes": "autoopt.data.boxes:yolox_boxes",
        "ssd_boxes": "autoopt.data.boxes:ssd_boxes",
        "ctc_greedy": "autoopt.data.scores:ctc_greedy",
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


Json: TypeAlias = dict[str, object]
PATH_PARAMS: Final = ("path", "labels", "tokenizer", "preprocessor", "vocabulary")
"""Parameters of `load_dataset` and `pre_process` that name files or folders, which must exist."""


@dataclass(frozen=True)
class ComponentConfig:
    """A registered component and its parameters."""

    type: str
    params: Json = field(default_factory=dict)


@dataclass(frozen=True)
class DataConfig:
    """One data set.

    `load_dataset` reads items, `pre_process` makes them model-ready, `dataloader` orders and samples them, and
    `post_process` turns a model's outputs into predictions. The path chooses the components that are not given.

    Raises:
        InputError: A number out of its range, or none or too many of `path`, `load_dataset` and `data_name`.
    """

    path: str | None = None
    """A file or folder; decides the loader unless `load_dataset` does."""
    load_dataset: ComponentConfig | None = None
    pre_process: ComponentConfig | None = None
    post_process: ComponentConfig | None = None
    dataloader: ComponentConfig | None = None
    user_script: str | None = None
    """A Python file whose decorated functions are components; only workers run it."""
    batch_size: int = 0
    """Items per inference; 0: one where time is measured, as many as the model allows elsewhere."""
    sample_ratio: float = 1.0
    """Share of the items to use, evenly spread over the set."""
    limit: int | None = None
    """Maximum number of items, from the start of what `dataloader` and `sample_ratio` leave."""
    meta_data: Json = field(default_factory=dict)
    """Free text about the data, not part of its identity."""
    state: dict[str, str] = field(default_factory=dict)
    """Recurrent state: {model output: model input it is fed back to}, zero at the first item."""
    reset_every: int | None = None
    """Items after which the recurrent state starts again from zero; None: never."""
    starts: list[int] | None = None
    """Items, counted from 0, that begin a sequence with the state that the data hold for them."""
    data_name: str | None = None
    """A data set of the Hugging Face hub, or a folder that its library reads."""
    subset: str | None = None
    split: str | None = None
    input_cols: list[str] | dict[str, str] | None = None
    """Columns of a table, or arrays of an .npz file, that are the input, by default all but the label; or the one of
    each input of the model: {input: column}."""
    ignore_cols: list[str] | None = None
    """Columns or arrays to leave out. By default, a column of a table that numbers the rows."""
    label_col: str | None = None
    """The column or array with the ground truth."""
    classes: list[str] | None = None
    """The labels of all classes in the order of the model's outputs; by default names count in sorted order."""

    def __post_init__(self) -> None:
        for name, low in (("batch_size", 0), ("limit", 1), ("reset_every", 1)):
            value = getattr(self, name)
            if value is not None and value < low:
                raise InputError(f"must be at least {low}, not {value}", where=f"data.{name}")
        if self.starts is not None:
            self._check_starts(self.starts)
        if not 0 < self.sample_ratio <= 1:
            reason = f"must be above 0 and at most 1, not {self.sample_ratio:g}"
            raise InputError(reason, where="data.sample_ratio")
        self._check_sources()

    def _check_starts(self, starts: list[int]) -> None:
        """Check the items that begin a sequence, which only recurrent state has."""
        if min(starts, default=0) < 0:
            raise InputError("must be numbers of items, from 0", where="data.starts")
        if not self.state or self.reset_every is not None:
            reason = "needs state" if not self.state else "excludes reset_every"
            raise InputError(reason, where="data.starts")

    def _check_sources(self) -> None:
        """Check that there is something to load, and one thing."""
        if self.path is not None and not self.path:
            raise InputError("is empty", where="data.path")
        sources = [self.path, self.load_dataset, self.data_name]
        if sources == [None, None, None]:
            raise InputError("needs one of path, load_dataset, data_name", where="data")
        if self.data_name is not None and any(sources[:2]):
            raise InputError("data_name excludes path and load_dataset", where="data")

    @staticmethod
    def parse(value: object) -> DataConfig:
        """Read a config from a mapping of fields, or from a path as short for `{"path": ...}`.

        A component may be a bare name. A config is returned as it is.

        Raises:
            InputError: The value is not a valid data config.
        """
        if isinstance(value, DataConfig):
            return value
        if isinstance(value, str | Path):
            value = {"path": str(value)}
        if isinstance(value, Mapping):
            value = dict(value)
            _check_fields(DataConfig, value, "data")
            for kind in BUILT_IN:
                component = value.get(kind)
                if isinstance(component, str):
                    value[kind] = {"type": component}
                elif isinstance(component, Mapping):
                    _check_fields(ComponentConfig, component, f"data.{kind}")
                    if "type" not in component:
                        raise InputError("needs a type", where=f"data.{kind}")
        try:
            return from_json(DataConfig, value)
        except JsonTypeError as error:
            place, _, problem = str(error).partition(": ")
            raise InputError(problem, where=f"data.{place}".removesuffix(".value")) from error

    def components(self) -> Iterator[tuple[Kind, ComponentConfig]]:
        """The components that are given, with their kinds."""
        for kind in BUILT_IN:
            component: ComponentConfig | None = getattr(self, kind)
            if component is not None:
                yield kind, component

    def paths(self) -> tuple[str, ...]:
        """All files and folders that must exist."""
        paths = [path for path in (self.path, self.user_script) if path]
        if self.data_name and Path(self.data_name).is_absolute():
            paths.append(self.data_name)
        for kind, component in self.components():
            paths += [str(component.params[name]) for name in _path_params(kind, component)]
        return tuple(dict.fromkeys(paths))

    def optional_paths(self, root: str | Path = ".") -> tuple[str, ...]:
        """All texts other than `paths` that happen to name an existing file or folder below `root`.

        These are `data_name` and the parameters of components that are not built in.
        """
        texts = [self.data_name] if self.data_name else []

        def collect(text: str) -> str:
            texts.append(text)
            return text

        for kind, component in self.components():
            for name in _possible_path_params(kind, component):
                map_texts(component.params[name], collect)
        return tuple(dict.fromkeys(text for text in texts if _exists(root, text)))

    def resolved(self, root: str | Path, scripts: str | Path | None = None) -> DataConfig:
        """The same config with absolute paths.

        Relative paths start from `root`, a folder or URL; that of the user script from `scripts` if it is given.
        """

        def resolve_existing(text: str) -> str:
            return resolve_path(root, text) if _exists(root, text) else text

        changes: Json = {}
        if self.path:
            changes["path"] = resolve_path(root, self.path)
        if self.user_script:
            changes["user_script"] = resolve_path(scripts or root, self.user_script)
        if self.data_name and Path(resolve_path(root, self.data_name)).is_dir():
            changes["data_name"] = resolve_path(root, self.data_name)
        for kind, component in self.components():
            params = dict(component.params)
            for name in _path_params(kind, component):
                params[name] = resolve_path(root, str(params[name]))
            for name in _possible_path_params(kind, component):
                params[name] = map_texts(params[name], resolve_existing)
            changes[kind] = replace(component, params=params)
        return replace(self, **changes)  # type: ignore[arg-type]  # the names are those of fields

    def to_json(self) -> Json:
        """The config as JSON, without fields that have their default."""
        document: Json = {}
        for name, value in vars(self).items():
            if isinstance(value, ComponentConfig):
                document[name] = {"type": value.type}
                if value.params:
                    document[name] = to_json(value)
            # A field without a class attribute has an empty mapping as its default.
            elif value != getattr(DataConfig, name, {}):
                document[name] = to_json(value)
        return document


def _check_fields(kind: type[DataConfig] | type[ComponentConfig], value: Mapping[str, object], where: str) -> None:
    """Refuse unknown fields, which are misspelled ones."""
    names = [each.name for each in fields(kind)]
    for name in value:
        if name not in names:
            remedy = did_you_mean(str(name), names) or f"known: {', '.join(names)}"
            raise InputError("unknown field", where=f"{where}.{name}", remedy=remedy)


def _path_params(kind: Kind, component: ComponentConfig) -> list[str]:
    """The parameters that name a file or folder."""
    if kind not in ("load_dataset", "pre_process"):
        return []
    return [name for name in PATH_PARAMS if isinstance(component.params.get(name), str)]


def _possible_path_params(kind: Kind, component: ComponentConfig) -> list[str]:
    """The parameters that may name files or folders: every parameter of a component that is not built in."""
    if component.type not in BUILT_IN[kind]:
        return list(component.params)
    if component.type == "huggingface" and "data_name" in component.params:
        return ["data_name"]
    return []


def map_texts(value: object, change: Callable[[str], str]) -> object:
    """A JSON value with `change` applied to each text in it; keys stay."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {key: map_texts(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [map_texts(item, change) for item in value]
    return value


def check_exists(root: str | None, *configurations: object) -> None:
    """Refuse paths of data that do not exist, before a worker reads them, which may have to wait for a measurement.

    Paths below a root are left to the worker.

    Raises:
        InputError: There is no such file or folder; all of them are named.
    """
    missing: list[str] = []
    for data in configurations:
        path = data.get("path") if isinstance(data, Mapping) else data
        if isinstance(path, str | Path) and "://" not in str(path) and not Path(path).expanduser().exists():
            missing.append(str(path))
    if missing and root is None:
        raise InputError("no such data file or folder", where=", ".join(dict.fromkeys(missing)))


def _exists(root: str | Path, text: str) -> bool:
    """True if a text names a file or folder below or beside `root`; `.`, `/` and the like contain `root` itself."""
    if "://" in str(root) or "://" in text or "\0" in text:
        return False
    path = os.path.abspath(os.path.join(root, os.path.expanduser(text)))
    return os.path.exists(path) and not Path(root).absolute().is_relative_to(path)


def resolve_path(root: str | Path, text: str) -> str:
    """Return `text` as an absolute path; relative ones start from `root`, a folder or URL. URLs stay as they are."""
    if "://" in text:
        return text
    if "://" in str(root) and not text.startswith("/"):
        return f"{str(root).rstrip('/')}/{text}"
    return str(Path(root, os.path.expanduser(text)).absolute())
