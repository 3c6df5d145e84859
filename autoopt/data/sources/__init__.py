"""Loaders of data sets, one module for each kind of file, and items that are made up for a model without data.

Read `arrays` first, the smallest loader. `synthetic` makes items up, of the sizes that `open_sizes` finds.
`autoopt.data.config` lists the loaders by their names in dag.yaml.
"""
