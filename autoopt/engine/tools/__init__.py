"""Single operations beside runs: apply one pass, examine the installation, verify a store, replay a recipe.

The modules do not build on each other. Read `apply` first: like most of them it makes one call in a worker and needs no
store. `recipe` and `maintenance` execute stored pass runs again; `exports` writes runs in the form of other tools.
"""
