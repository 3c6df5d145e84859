"""The public names of autoopt for type checkers and editors; `__init__.py` imports them at first use."""

from autoopt.api import resume, run
from autoopt.engine.tools.apply import get_pass, get_registered_passes
from autoopt.measure.quality.task import register_metric
from autoopt.model.session_file import load
from autoopt.passes.base import Pass, Refused, Retry
from autoopt.passes.composed.sequence import Repeat, Sequence
from autoopt.problem.resolve import make_plan as plan
from autoopt.registry import Minimum, Param, Unit, register
from autoopt.space import IGNORED, INVALID, Boolean, Categorical, Conditional, ConditionalDefault, Float, Integer
from autoopt.spec.builder import Dag
from autoopt.stored_runs import Run, load_run, runs

__all__ = [
    "IGNORED",
    "INVALID",
    "Boolean",
    "Categorical",
    "Conditional",
    "ConditionalDefault",
    "Dag",
    "Float",
    "Integer",
    "Minimum",
    "Param",
    "Pass",
    "Refused",
    "Repeat",
    "Retry",
    "Run",
    "Sequence",
    "Unit",
    "get_pass",
    "get_registered_passes",
    "load",
    "load_run",
    "plan",
    "register",
    "register_metric",
    "resume",
    "run",
    "runs",
]
