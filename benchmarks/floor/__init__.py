"""A run of autoopt against the floor: a sequential script that calls the same libraries on the same points."""
