"""The history of a zoo over its nights: text, page, lasting changes.

Read `night_history` first: its records are what the others show.
"""
