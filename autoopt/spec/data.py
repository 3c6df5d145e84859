"""The data of a run: the `data:` section."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Final, cast

from pydantic import Field, JsonValue, ValidationInfo, field_validator

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
    calibration: str | dict[str, JsonValue] | None = None
    latency: str | dict[str, JsonValue] | None = None

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

    def resolved(self, which: str, folder: Path, root: str | None = None) -> JsonValue:
        """Return a config as JSON with absolute paths; None if not given.

        Relative paths start from `root` (a folder or URL), else from `folder`.
        """
        value: str | dict[str, JsonValue] | None = getattr(self, which)
        if value is None:
            return None
        if isinstance(value, str):
            return resolve_path(root or folder, value)
        from autoopt.data.config import DataConfig

        config = DataConfig.parse(value).resolved(root or folder, scripts=folder)
        return cast(JsonValue, config.to_json())

    def paths(self) -> Iterator[tuple[Place, str]]:
        """Yield every file and folder that the data is read from, with its place."""
        for which in WHICH:
            value = getattr(self, which)
            if isinstance(value, str):
                yield (which,), value
            elif value is not None:
                from autoopt.data.config import DataConfig

                for path in DataConfig.parse(value).paths():
                    yield (which,), path


def resolve_path(folder: Path | str, text: str) -> str:
    """Return `text` as an absolute path; relative ones start from `folder`, a path or URL. URLs stay as they are."""
    if "://" in text:
        return text
    if "://" in str(folder) and not text.startswith("/"):
        return f"{str(folder).rstrip('/')}/{text}"
    return str(Path(folder).joinpath(Path(text).expanduser()).absolute())


def _check_config(value: object) -> None:
    if isinstance(value, dict):
        from autoopt.data.config import DataConfig  # late: most files name a path

        try:
            DataConfig.parse(value)
        except InputError as error:
            place = tuple(error.where.split(".")[1:])
            raise FieldError(error.what, place=place, remedy=error.remedy) from error
    elif value is not None and (not isinstance(value, str) or not value):
        raise FieldError("must be a path or a data config")
