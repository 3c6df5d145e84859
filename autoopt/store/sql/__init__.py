"""The store in an SQL database. Read `store` first; `tables` is the schema, `database` runs transactions."""
