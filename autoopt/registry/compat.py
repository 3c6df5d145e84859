"""What does here what a pass of PopRT or Olive does: the answers of `autoopt passes compat`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from autoopt.errors import InputError, did_you_mean
from autoopt.registry.compat_table import OLIVE, POPRT


@dataclass(frozen=True)
class Answer:
    """`passes` do here what `name` does in `product`, with `params`; none: `remark` says why there is nothing.

    A name with one pass is an alias of it in dag.yaml: it stands for that pass with `presets`, which are `params`
    unless these are only an `example` of what the user has to give.
    """

    name: str
    product: str
    passes: tuple[str, ...]
    params: dict[str, Any]
    remark: str
    example: bool = False

    @property
    def presets(self) -> dict[str, Any]:
        """The parameters that the name stands for."""
        return {} if self.example else dict(self.params)

    @property
    def hint(self) -> str:
        """What to tell who uses the name and cannot."""
        return f"what it does in {self.product} is here: {self.text}"

    @property
    def text(self) -> str:
        """The answer in one line."""
        if not self.passes:
            return f"nothing portable: {self.remark}"
        shown = " or ".join(self.passes)
        if self.params:
            shown += (" with, for example, " if self.example else " with ") + ", ".join(
                f"{k}: {json.dumps(v)}" for k, v in self.params.items()
            )
        return f"{shown} ({self.remark})" if self.remark else shown

    def to_json(self) -> dict[str, Any]:
        """The answer as JSON, with its one-line form as `text`."""
        return {**asdict(self), "passes": list(self.passes), "text": self.text}


@lru_cache(maxsize=1)
def answers() -> dict[str, Answer]:
    """All answers by name: those of PopRT, then those of Olive."""
    found = [_answer(line, product) for product, text in (("PopRT", POPRT), ("Olive", OLIVE)) for line in _lines(text)]
    return {answer.name: answer for answer in found}


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line]


def _answer(line: str, product: str) -> Answer:
    name, passes, params, remark = (f"{line} ".split(" | ") + [""])[:4]
    known = () if passes.strip() == "-" else tuple(part.strip() for part in passes.split(" or "))
    given = params.strip().replace("NAME", name)
    values = json.loads(given.removeprefix("e.g.") or "{}")
    return Answer(name, product, known, values, remark.strip(), given.startswith("e.g."))


def answer(name: str) -> Answer:
    """What does here what `name` does there; upper and lower case are the same.

    Raises:
        InputError: neither PopRT nor Olive has a pass of that name; names the nearest.
    """
    by_lower = {known.lower(): found for known, found in answers().items()}
    if name.lower() in by_lower:
        return by_lower[name.lower()]
    hint = did_you_mean(name, answers())
    raise InputError(
        f"no pass of PopRT or Olive is called {name!r}", remedy=hint or "'autoopt passes compat' shows all"
    )
