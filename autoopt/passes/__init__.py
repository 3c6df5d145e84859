"""Optimization passes: the framework that runs them, and one package for each family.

Start with `base.optimization_pass` (`Pass`, the class that every pass derives from) and `docs/writing_a_pass.md`.
`runner` is the entry point in a worker process; `execution` takes a model through the requested passes, and
`verification` checks each result. The other packages are the families that `autoopt passes list` shows, with their
shared helpers in `onnx_tools`. `catalogue` describes passes to readers.
"""
