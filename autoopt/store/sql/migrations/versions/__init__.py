"""One file for each schema that was released."""
