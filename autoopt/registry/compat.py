"""The autoopt equivalents of PopRT and Olive passes: the answers of `autoopt passes compat`.

`compat.txt` is the table; its head says what a line means.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from autoopt.errors import InputError, did_you_mean
from autoopt.json_codec import JsonValue, to_json

TABLE: Final = Path(__file__).with_name("compat.txt")


@dataclass(frozen=True)
class Answer:
    """The equivalent of pass `name` of `product`: `passes` with `params`, or none and a `remark` with the reason.

    A name with one pass is an alias of it in dag.yaml. It stands for that pass with `presets`: the `params`, unless
    they are only an `example` of values that the user has to give.
    """

    name: str
    product: str
    passes: tuple[str, ...]
    params: dict[str, JsonValue]
    remark: str
    example: bool = False

    @property
    def presets(self) -> dict[str, JsonValue]:
        """The parameters that the name implies."""
        if self.example:
            return {}
        return dict(self.params)

    @property
    def hint(self) -> str:
        """The remedy for a user who wrote a name that is not an alias."""
        return f"autoopt's equivalent of this {self.product} pass: {self.text}"

    @property
    def text(self) -> str:
        """The answer in one line."""
        if not self.passes:
            return f"nothing portable: {self.remark}"
        text = " or ".join(self.passes)
        if self.params:
            values = ", ".join(f"{name}: {json.dumps(value)}" for name, value in self.params.items())
            if self.example:
                text += f" with, for example, {values}"
            else:
                text += f" with {values}"
        if self.remark:
            text += f" ({self.remark})"
        return text

    def to_json(self) -> dict[str, JsonValue]:
        """The answer as JSON, with its one-line form as `text`."""
        return {**to_json(self), "text": self.text}


@lru_cache(maxsize=1)
def answers() -> dict[str, Answer]:
    """All answers by name: first PopRT's, then Olive's, then those to the kinds of its GraphSurgeries."""
    answers: dict[str, Answer] = {}
    product = ""
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            product = line.strip("[]")
        elif line and not line.startswith("#"):
            name, passes, params, remark = (f"{line} ".split(" | ") + [""])[:4]
            names = tuple(map(str.strip, passes.split(" or "))) if passes.strip() != "-" else ()
            params = params.strip().replace("NAME", name)
            values = json.loads(params.removeprefix("e.g.") or "{}")
            answers[name] = Answer(name, product, names, values, remark.strip(), example=params.startswith("e.g."))
    return answers


def answer(name: str) -> Answer:
    """The equivalent of the pass `name`; upper and lower case are the same.

    Raises:
        InputError: neither PopRT nor Olive has a pass of that name; suggests the nearest.
    """
    for candidate in answers().values():
        if candidate.name.lower() == name.lower():
            return candidate
    hint = did_you_mean(name, answers())
    raise InputError(f"PopRT and Olive have no pass {name!r}", remedy=hint or "'autoopt passes compat' shows all")
