"""Types of the fields of forms that start flows: their bounds are checked before a run starts."""

from __future__ import annotations

import re
from typing import Annotated, TypeAlias

from pydantic import Field

Trials: TypeAlias = Annotated[int, Field(ge=1)] | None
Minutes: TypeAlias = Annotated[float, Field(gt=0)] | None
Workers: TypeAlias = Annotated[int, Field(ge=1)]


def in_form_words(text: str) -> str:
    """A text of the command line with the names of the form's fields in place of options."""
    named = re.sub(r"--(data|minutes|remeasure|trials)\b", r"`\1`", text)
    return named.replace("the same command", "the same deployment")
