"""Sweeps have an owner with a lease, as runs do."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add `sweep.owner` and `sweep.lease`."""
    op.add_column("sweep", sa.Column("owner", sa.Text(), nullable=True))
    op.add_column("sweep", sa.Column("lease", sa.Double(), nullable=True))
