"""The command line: parse, one call, render. Only the command that is asked for is imported."""
