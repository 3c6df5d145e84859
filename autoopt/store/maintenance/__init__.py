"""Looking after a store: garbage collection, a size limit, verification, statistics, export and import of runs."""
