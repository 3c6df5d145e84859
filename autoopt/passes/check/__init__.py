"""Analyses that leave a report and never change the model.

Read `reports` first. `validity` and `layer_precision` also run the model.
"""
