"""Looking after a store: what may go, what must stay, whether it is whole, and moving it.

Read `references` first: it decides which artifacts must stay. `gc` and `quota` remove others, `verify` reads all of
them, `stats` counts. `transfer` moves one run between stores (`imported` prepares its rows), `backup` a whole store;
`rebuild` makes a store out of what is left of one.
"""
