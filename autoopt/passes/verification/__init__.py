"""Checks on the result of a pass.

Read `equivalence` first: it runs onnx's checker, and then both models on `synthetic_feeds`.
`output_comparison` compares their outputs; how much of a difference rounding explains is measured by `rounding`, which
runs a `noisy_model`. `fingerprint` decides whether a pass changed anything.
"""
