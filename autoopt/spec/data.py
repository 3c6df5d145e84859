"""The data of a run: the `data:` section."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Final, cast

from pydantic import Field, JsonValue, ValidationInfo, field_validator

from autoopt.data.config import BUILT_IN, DataConfig, resolve_path
from autoopt.errors import InputError
from autoopt.spec.source import FieldError, Place, below
from autoopt.spec.strict_model import StrictModel

WHICH: Final = ("evaluation", "calibration", "latency")


class DataSpec(StrictModel):
    """Data by purpose, each a path or a composed data config. A bare text is `evaluation`.

    Latency is measured on the evaluation data if `latency` is not given.
    """

    short: ClassVar[str] = "evaluation"

    configs: dict[str, str | dict[str, JsonValue]] = Field(default_factory=dict)
    """Data configs by name; the three below may name one."""
    evaluation: str | dict[str, JsonValue] | None = None
    """Data for quality metrics, with labels or without; a path or a composed data config."""
    calibration: str | dict[str, JsonValue] | None = None
    """Data that passes read, such as static quantization; the evaluation data if it is not given."""
    latency: str | dict[str, JsonValue] | None = None
    """Data to measure latency on; the evaluation data if it is not given."""

    @field_validator("configs", mode="before")
    @classmethod
    def _check_configs(cls, value: object) -> object:
        if not isinstance(value, dict):
            raise FieldError("must be a mapping of names to data configs")
        for name, config in value.items():
            with below(name):
                _check_config(config)
        return value

    @field_validator(*WHICH, mode="before")
    @classmethod
    def _replace_name(cls, value: object, info: ValidationInfo) -> object:
        """Replace the name of a config by the config."""
        if isinstance(value, str):
            value = info.data.get("configs", {}).get(value, value)
        _check_config(value)
        return value

    def resolved(self, which: str, folder: Path, root: str | None = None, script: str | None = None) -> JsonValue:
        """Return a config as JSON with absolute paths; None if not given.

        Relative paths start from `root` (a folder or URL), else from `folder`. A config with components that are not
        built in finds them in `script`, unless it names a script of its own.
        """
        value: str | dict[str, JsonValue] | None = getattr(self, which)
        if value is None:
            return None
        if isinstance(value, str):
            return resolve_path(root or folder, value)
        config = DataConfig.parse(value)
        if config.user_script is None and any(part.type not in BUILT_IN[kind] for kind, part in config.components()):
            config = replace(config, user_script=script)
        config = config.resolved(root or folder, scripts=folder)
        return cast(JsonValue, config.to_json())

    def paths(self) -> Iterator[tuple[Place, str]]:
        """Yield every file and folder that the data is read from, with its place."""
        for which in WHICH:
            value = getattr(self, which)
            if isinstance(value, str):
                yield (which,), value
            elif value is not None:
                for path in DataConfig.parse(value).paths():
                    yield (which,), path


def _check_config(value: object) -> None:
    if isinstance(value, dict):
        try:
            DataConfig.parse(value)
        except InputError as error:
            place = tuple(error.where.split(".")[1:])
            raise FieldError(error.what, place=place, remedy=error.remedy) from error
    elif value is not None and (not isinstance(value, str) or not value):
        raise FieldError("must be a path or a data config")
