"""The settings of a run name the environment of its passes `replay_environment`, no longer `kitchen`."""

import json

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Rename the key in `run.settings`."""
    run = sa.table("run", sa.column("number", sa.Integer), sa.column("settings", sa.Text))
    connection = op.get_bind()
    # The condition only spares parsing; settings that hold the word elsewhere are left alone below.
    query = sa.select(run.c.number, run.c.settings).where(run.c.settings.contains('"kitchen"'))
    for number, text in connection.execute(query).all():
        settings = json.loads(text)
        if "kitchen" in settings:
            settings["replay_environment"] = settings.pop("kitchen")
            content = json.dumps(settings, sort_keys=True, separators=(",", ":"))
            connection.execute(sa.update(run).where(run.c.number == number).values(settings=content))
