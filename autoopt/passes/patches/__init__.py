"""Corrections of libraries, made while they work or once per process: the only place that changes their objects.

Each names what it corrects, and fails with an error if it no longer finds it there.
"""
