"""Pass runs that left a model unchanged have an index of their own: few among the many of one model."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Replace the index of all inputs, which nothing else uses."""
    unchanged = sa.text("outcome = 'unchanged'")
    op.create_index(
        "ix_pass_run_unchanged", "pass_run", ["input_key"], sqlite_where=unchanged, postgresql_where=unchanged
    )
    op.drop_index(op.f("ix_pass_run_input_key"), table_name="pass_run")
