"""The registry of passes: built-in ones, plug-ins, and those that user scripts register.

Planning needs only a `PassInfo` (parameters for a target, required and conflicting passes), which imports neither onnx
nor onnxruntime: pass modules import those inside `run`. Read `pass_registry` first; `built_in` lists the passes.
"""

from autoopt.registry.describe import Takes, describe, form_of, is_analysis
from autoopt.registry.pass_info import (
    REQUIRED,
    Minimum,
    Param,
    ParameterInfo,
    PassInfo,
    Tolerance,
    Unit,
    info_from_json,
    info_to_json,
)
from autoopt.registry.pass_registry import BUILT_IN, Failure, Registry, register, registry
from autoopt.registry.request import DESCRIBE, DescribeReply, DescribeRequest

__all__ = [
    "BUILT_IN",
    "DESCRIBE",
    "REQUIRED",
    "DescribeReply",
    "DescribeRequest",
    "Failure",
    "Minimum",
    "Param",
    "ParameterInfo",
    "PassInfo",
    "Registry",
    "Takes",
    "Tolerance",
    "Unit",
    "describe",
    "form_of",
    "info_from_json",
    "info_to_json",
    "is_analysis",
    "register",
    "registry",
]
