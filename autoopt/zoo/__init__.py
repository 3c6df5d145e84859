"""Zoos of models: sweeps, nights and what they show, releases.

Read `sweep` first: it has `sweep_entry` run each model and `sweep_comparison` judge it beside `earlier_sweeps`.
`nights` looks at all nights, with `lasting_changes`. The `_report` modules write what they found.
"""
