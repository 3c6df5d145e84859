"""Artifacts as files: `artifacts` on this machine, `remote` where machines share them."""
