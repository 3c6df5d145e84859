"""Shape inference, and open dimensions made fixed.

Read `fixed_shapes` first. `inference` infers the shapes in between.
"""
