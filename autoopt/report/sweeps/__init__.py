"""The result of a sweep: its tables and page, what changed since earlier sweeps, and files for continuous integration.

Read `sweep` first. `sweep_comparison` decides what counts as a change.
"""
