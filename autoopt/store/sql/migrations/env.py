"""Run by Alembic, with the connection (and its open transaction) that `autoopt.store.sql.schema` hands over."""

from alembic import context

from autoopt.store.sql.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,  # SQLite changes a table by making it anew
)
with context.begin_transaction():
    context.run_migrations()
