"""Which data is used for what: the `data:` section."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Final

from pydantic import Field, ValidationInfo, field_validator

from autoopt.errors import InputError
from autoopt.spec.source import FieldError, Place
from autoopt.spec.strict_model import StrictModel

WHICH: Final = ("evaluation", "calibration", "latency")


class DataSpec(StrictModel):
    """Each is a path or a composed data config; a bare text is `evaluation`. Latency is measured on the evaluation data
    where `latency` is not given."""

    short: ClassVar[str] = "evaluation"

    configs: dict[str, str | dict[str, Any]] = Field(default_factory=dict)
    """Data configs by name; the three below may name one."""
    evaluation: str | dict[str, Any] | None = None
    calibration: str | dict[str, Any] | None = None
    latency: str | dict[str, Any] | None = None

    @field_validator("configs", mode="before")
    @classmethod
    def _check_named(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            raise FieldError("must be a mapping of names to data configs")
        for name, config in value.items():
            try:
                cls._checked(config)
            except FieldError as wrong:
                raise FieldError(wrong.reason, place=(name, *wrong.place), remedy=wrong.remedy) from None
        return value

    @field_validator(*WHICH, mode="before")
    @classmethod
    def _check(cls, value: Any, info: ValidationInfo) -> Any:
        """The config; that of a name where it is one."""
        named = info.data.get("configs", {}).get(value) if isinstance(value, str) else None
        return cls._checked(value if named is None else named)

    @staticmethod
    def _checked(value: Any) -> Any:
        if isinstance(value, dict):
            from autoopt.data.config import DataConfig

            try:
                DataConfig.parse(value)
            except InputError as error:
                place = tuple(error.where.split(".")[1:])
                raise FieldError(error.what, place=place, remedy=error.remedy) from error
        elif value is not None and (not isinstance(value, str) or not value):
            raise FieldError("must be a path or a data config")
        return value

    def resolved(self, which: str, folder: Path, root: str | None = None) -> Any:
        """The config as JSON, paths absolute: relative ones start from `root` (a folder or URL), else from `folder`.
        None if not given."""
        value = getattr(self, which)
        if value is None:
            return None
        if isinstance(value, str):
            return resolve_path(root or folder, value)
        from autoopt.data.config import DataConfig

        return DataConfig.parse(value).resolved(root or folder, scripts=folder).to_json()

    def paths(self) -> Iterator[tuple[Place, str]]:
        """Every file and folder that the data is read from, with its place."""
        for which in WHICH:
            value = getattr(self, which)
            if isinstance(value, str):
                yield (which,), value
            elif value is not None:
                from autoopt.data.config import DataConfig

                yield from (((which,), path) for path in DataConfig.parse(value).paths())


def resolve_path(folder: Path | str, text: str) -> str:
    """`text` as an absolute path, relative ones taken from `folder`, a path or URL; URLs (`s3://...`) as they are."""
    if "://" in str(folder) and "://" not in text and not text.startswith("/"):
        return f"{str(folder).rstrip('/')}/{text}"
    return text if "://" in text else str(Path(folder).joinpath(Path(text).expanduser()).absolute())
