"""Zoos of models: sweeps, nights and what they show, releases.

Read `sweep` first: it has `sweep_entry` run each model and `sweep_comparison` judge it beside `earlier_sweeps`.
`night_history` looks at all nights, with `change_points`. The `_text` and `_page` modules write what they found.
"""
