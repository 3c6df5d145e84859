"""The command line: parse, one call, render.

Read `app` first: it holds the table of commands, imports only the one that the user calls, and turns errors into exit
codes. `option_groups` and `data_options` are the options that several commands share; `output` prints a document or
text, and `store_access` opens the store for commands that only read it. Each other module is a family of commands.
"""
