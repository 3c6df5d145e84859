"""What a data set is, as written in dag.yaml: a path, a composition of components, or the Hugging Face shorthand."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from autoopt.data.components import BUILT_IN, Kind
from autoopt.errors import InputError, one_line

if TYPE_CHECKING:
    from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
else:
    try:
        from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
    except ImportError:  # an interpreter that only measures
        from autoopt.data.plain import BaseModel, ConfigDict, Field, ValidationError, model_validator

Json: TypeAlias = dict[str, Any]

PATH_PARAMS = ("path", "labels", "tokenizer", "vocabulary")
"""Parameters of `load_dataset` and `pre_process` that name files or folders, which have to be there."""


class ComponentConfig(BaseModel):
    """A registered component and its parameters; a bare name is short for one without parameters."""

    model_config = ConfigDict(extra="forbid")

    type: str
    params: Json = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        return {"type": value} if isinstance(value, str) else value


class DataConfig(BaseModel):
    """One data set; a bare string is short for `path`.

    The way of the data: `load_dataset` gives items, `pre_process` makes them model-ready, `dataloader` orders and
    samples them, `post_process` makes predictions of a model's outputs. What is not given is chosen by the path.
    """

    model_config = ConfigDict(extra="forbid")

    path: str | None = None
    """A file or folder; decides the loader where `load_dataset` does not."""
    load_dataset: ComponentConfig | None = None
    pre_process: ComponentConfig | None = None
    post_process: ComponentConfig | None = None
    dataloader: ComponentConfig | None = None
    user_script: str | None = None
    """A Python file whose decorated functions are components; read in workers only."""
    batch_size: int = Field(default=0, ge=0)
    """Items per inference; 0: one where time is measured, as many as the model allows elsewhere."""
    sample_ratio: float = Field(default=1.0, gt=0, le=1)
    """Share of the items that is used, evenly spread over the set."""
    limit: int | None = Field(default=None, ge=1)
    """Most items that are used, from the start of what `dataloader` and `sample_ratio` leave."""
    meta_data: Json = Field(default_factory=dict)
    """Free text about the data, not part of its identity."""
    state: dict[str, str] = Field(default_factory=dict)
    """Recurrent state: {model output: model input it is fed back to}, zero at the first item."""
    reset_every: int | None = Field(default=None, ge=1)
    """Items after which the recurrent state starts again from zero; None: never."""
    data_name: str | None = None
    """A data set of the Hugging Face hub, or a folder that its library reads."""
    subset: str | None = None
    split: str | None = None
    input_cols: list[str] | None = None
    label_col: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_path(cls, value: Any) -> Any:
        return {"path": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _one_source(self) -> DataConfig:
        given = [self.path is not None, self.load_dataset is not None, self.data_name is not None]
        if not any(given):
            raise ValueError("needs one of path, load_dataset, data_name")
        if self.data_name is not None and (self.path or self.load_dataset):
            raise ValueError("data_name excludes path and load_dataset")
        return self

    @classmethod
    def parse(cls, value: str | Path | Mapping[str, Any] | DataConfig) -> DataConfig:
        """The config of a path, a mapping or a config.

        Raises:
            InputError: not a valid data config.
        """
        if isinstance(value, DataConfig):
            return value
        try:
            return cls.model_validate(str(value) if isinstance(value, Path) else value)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"])
            raise InputError(one_line(first["msg"]), where=f"data{'.' if field else ''}{field}") from error

    def paths(self) -> tuple[str, ...]:
        """Every file and folder that has to be there."""
        found = [p for p in (self.path, self.user_script) if p]
        if self.data_name and Path(self.data_name).is_absolute():
            found.append(self.data_name)
        for component in (self.load_dataset, self.pre_process):
            if component:
                found += [str(component.params[k]) for k in PATH_PARAMS if isinstance(component.params.get(k), str)]
        return tuple(dict.fromkeys(found))

    def named(self, root: str | Path = ".") -> tuple[str, ...]:
        """Besides `paths`, every text that names a file or folder that is there, relative ones taken from `root`: the
        parameters of components that are not built in, and a `data_name`."""
        texts = [self.data_name] if self.data_name else []
        for kind in BUILT_IN:
            component: ComponentConfig | None = getattr(self, kind)
            if component:
                texts += _texts(_maybe_paths(kind, component.type, component.params))
        return tuple(dict.fromkeys(text for text in texts if _is_there(root, text)))

    def resolved(self, root: str | Path, scripts: str | Path | None = None) -> DataConfig:
        """The same with every path absolute, relative ones taken from `root`, that of a script from `scripts`."""
        data = self.model_dump(mode="json", exclude_defaults=True)
        for key, folder in (("path", root), ("user_script", scripts or root)):
            if data.get(key):
                data[key] = str(_below(folder, data[key]))
        if data.get("data_name") and Path(local := _below(root, data["data_name"])).is_dir():
            data["data_name"] = str(local)
        for key in ("load_dataset", "pre_process"):
            params = data.get(key, {}).get("params", {})
            for name in PATH_PARAMS:
                if isinstance(params.get(name), str):
                    params[name] = str(_below(root, params[name]))
        for kind in BUILT_IN:
            params = data.get(kind, {}).get("params", {})
            if params:
                params.update(_absolute(_maybe_paths(kind, data[kind]["type"], params), root))
        return DataConfig.model_validate(data)

    def to_json(self) -> Json:
        """The config as JSON without what is default."""
        return self.model_dump(mode="json", exclude_defaults=True)


def _maybe_paths(kind: Kind, name: str, params: Json) -> Json:
    """The parameters of a component that may name files or folders: all, where it is not built in."""
    if name in BUILT_IN[kind]:
        return {k: v for k, v in params.items() if name == "huggingface" and k == "data_name"}
    return params


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


def _absolute(value: Any, root: str | Path) -> Any:
    """The same with absolute paths in place of texts that name a file or folder that is there."""
    if isinstance(value, str):
        return str(_below(root, value)) if _is_there(root, value) else value
    if isinstance(value, dict):
        return {k: _absolute(v, root) for k, v in value.items()}
    return [_absolute(v, root) for v in value] if isinstance(value, list) else value


def _is_there(root: str | Path, text: str) -> bool:
    """Whether a text names a file or folder; `.`, `/` and the like, in which `root` itself lies, are none."""
    if "://" in str(root) or "://" in text or "\0" in text:
        return False
    path = os.path.abspath(os.path.join(root, os.path.expanduser(text)))
    return os.path.exists(path) and not Path(root).absolute().is_relative_to(path)


def _below(root: str | Path, path: str) -> str | Path:
    if "://" in str(root) and "://" not in path:
        return f"{str(root).rstrip('/')}/{path}"
    return path if "://" in path else Path(root, os.path.expanduser(path)).absolute()
