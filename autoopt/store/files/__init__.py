"""Artifacts as files: content-addressed folders, on this machine and where machines share them.

Read `artifacts` first: it holds the promise that a folder is complete or absent. `remote` keeps it on object stores
and shared folders; `filesystem` writes so that a power cut cannot undo it.
"""
