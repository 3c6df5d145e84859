"""Single operations beside runs: apply one pass, examine the installation, replay a recipe, export a run.

The modules do not build on each other. Read `apply` first: like most of them it makes one call in a worker and needs no
store.
"""
