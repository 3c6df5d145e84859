"""Types of the fields of forms that start flows: their bounds are checked before a run starts."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import Field

Trials: TypeAlias = Annotated[int, Field(ge=1)] | None
Minutes: TypeAlias = Annotated[float, Field(gt=0)] | None
Workers: TypeAlias = Annotated[int, Field(ge=1)]
