"""A user script with passes for tests, and a helper that runs passes on a micro-model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from micro_models import MODELS

from autoopt.model import io
from autoopt.passes.runner import run

SCRIPT = '''
from pathlib import Path
from typing import Annotated
from autoopt import Categorical, Param, Pass, Refused, Retry, register

def log(text):
    with open(Path(__file__).with_name("log"), "a") as file:
        file.write(text + "\\n")

@register("add_note")
def add_note(model, text: Annotated[str, "the note"] = "x"):
    """Leaves a note."""
    model.metadata_props.add(key="note", value=text)
    return model
add_note.touches = ("metadata",)

@register("smaller")
class Smaller(Pass):
    """Halves until it fits."""
    size: Annotated[int, Categorical(64, 32), "size"] = 64
    fits: int = 16
    def run(self, model):
        log(f"smaller {self.size}")
        return Retry("too big", {"size": self.size // 2}) if self.size > self.fits else None

@register("stuck")
class Stuck(Pass):
    """Asks for what it had."""
    def run(self, model):
        return Retry("again", {})

@register("count")
class Count(Pass):
    """Counts nodes."""
    analysis = True
    def run(self, model):
        log("count")
        self.context.reports["count"] = len(model.graph.node)

@register("needs_count")
class NeedsCount(Pass):
    """Uses the count."""
    requires = ("count",)
    note: str = "n"
    touches = ("metadata",)
    def run(self, model):
        model.metadata_props.add(key=self.note, value=str(self.context.reports["count"]))
        return model

@register("breaks")
class Breaks(Pass):
    """Computes something else."""
    tolerance = "equal"
    def run(self, model):
        model.graph.node[0].op_type = "Neg"
        return model

@register("breaks_until_small")
class BreaksUntilSmall(Pass):
    """Computes something else, and asks for another size."""
    size: int = 64
    last: int = 64
    def run(self, model):
        model.graph.node[0].op_type = "Neg"
        return model
    def after_rejection(self, problem):
        return Retry("wrong", {"size": self.size // 2}) if self.size > self.last else None

@register("invalid")
class Invalid(Pass):
    """Leaves a graph that is none."""
    def run(self, model):
        model.graph.node[0].input[0] = "nowhere"
        return model

@register("uses")
class Uses(Pass):
    """Calls an object of this script."""
    how: Annotated[object, Param("object")] = None
    def run(self, model):
        return self.how(model)

def chosen(model):
    raise Refused("called the chosen one")
'''


def steps(
    tmp_path: Path, model: str, *wanted: str | tuple[str, dict[str, Any]], script: str | None = None, **more: Any
) -> list[dict[str, Any]]:
    path = io.save(MODELS[model](), tmp_path / "source")
    listed = [(w, {}) if isinstance(w, str) else w for w in wanted]
    payload = {
        "model": {"path": str(path), "session_options": {"intra_op_num_threads": 1}},
        "steps": [{"node": f"n{i}", "pass": name, "params": params} for i, (name, params) in enumerate(listed)],
        "output": str(tmp_path / "out"),
        "user_script": script,
        **more,
    }
    result: list[dict[str, Any]] = run(payload)["steps"]
    return result
