"""Looking after a store: what may go, what must stay, whether it is whole, and copying it.

Read `gc` first: it decides which artifacts must stay, and removes others. `verify` reads all of them, `stats` counts.
`backup` copies a store, and restores it into either kind of database.
"""
