"""Alembic's folder: `env.py` is run by Alembic, `versions/` holds one file for each schema that was released.

A new schema is: the change in `autoopt.store.tables`, the new `HEAD` there, and a file in `versions/` written by hand
that leads to it from the last one. A released file is never changed again.
"""
