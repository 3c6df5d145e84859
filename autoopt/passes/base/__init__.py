"""The framework for pass authors: the `Pass` class, its lifecycle and its configuration.

Read `optimization_pass` first. `contract` holds what a pass returns, raises and may use; `lifecycle` runs a pass once;
`build` completes and checks its parameters and makes a pass object from a registered class or function; `conversion`
changes between protobufs and onnx-ir.
"""

from autoopt.passes.base.contract import PassContext, Refused, Retry, SessionOptions, SourceFile, Touch
from autoopt.passes.base.optimization_pass import Pass

__all__ = ["Pass", "PassContext", "Refused", "Retry", "SessionOptions", "SourceFile", "Touch"]
