"""The framework for pass authors: the `Pass` class, its lifecycle and its configuration.

Read `optimization_pass` first. `contract` holds what a pass returns, raises and may use; `lifecycle` runs a pass once;
`config` completes and checks its parameters; `build` makes a pass object from a registered class or function;
`conflicts` lists groups of passes that exclude others.
"""

from autoopt.passes.base.contract import PassContext, Refused, Retry, SessionOptions, SourceFile, Touch
from autoopt.passes.base.optimization_pass import Pass

__all__ = ["Pass", "PassContext", "Refused", "Retry", "SessionOptions", "SourceFile", "Touch"]
