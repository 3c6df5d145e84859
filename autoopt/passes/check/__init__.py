"""Analyses that leave a report and never change the model.

`reports` looks at whole models, `layers` at the error of each layer.
"""
