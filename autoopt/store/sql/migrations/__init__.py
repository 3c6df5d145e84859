"""Alembic's folder: Alembic runs `env.py`; `versions/` holds one file per released schema.

A new schema consists of the change in `autoopt.store.sql.tables`, the new `HEAD` there, and a file in `versions/`,
written by hand, that leads to it from the last one. A released file never changes again.
"""
