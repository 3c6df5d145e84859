"""Runs with several targets: each target's part is a run of its own that names the whole."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add `run.parent`."""
    op.add_column("run", sa.Column("parent", sa.String(length=64), nullable=True))
    op.create_index(op.f("ix_run_parent"), "run", ["parent"], unique=False)
