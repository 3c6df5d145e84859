"""Single operations beside runs: apply one pass, examine the installation, verify a store, replay a recipe."""
