"""Looking after a store: what may go, what must stay, whether it is whole, and copying it.

Read `references` first: it decides which artifacts must stay. `gc` removes others, `verify` reads all of them, `stats`
counts. `backup` copies a store, and restores it into either kind of database.
"""
