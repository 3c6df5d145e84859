"""Checks on the result of a pass.

Read `checker` first: it runs onnx's checker and then `equivalence`, which compares outputs on `synthetic_feeds`.
`fingerprint` decides whether a pass changed anything.
"""
