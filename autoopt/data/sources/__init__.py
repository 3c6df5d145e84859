"""Loaders of data sets, one module for each kind of file, and items that are made up for a model without data.

Read `arrays` first, the smallest loader. `synthetic` makes items up: `open_sizes` sizes images, `signals` makes sounds
and recurrent states. `autoopt.data.components` lists the loaders by their names in dag.yaml.
"""
