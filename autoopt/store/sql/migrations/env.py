"""Run by Alembic, with the open transaction that `autoopt.store.sql.schema` hands over."""

from alembic import context

from autoopt.store.sql.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,  # SQLite changes a table by copying it
)
with context.begin_transaction():
    context.run_migrations()
