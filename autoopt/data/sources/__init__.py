"""Loaders of data sets, one module per kind of file."""
