"""The first schema."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make all tables."""
    op.create_table(
        "artifact",
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("files", sa.Text(), nullable=False),
        sa.Column("present", sa.Integer(), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_artifact")),
    )
    op.create_table(
        "environment",
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_environment")),
    )
    op.create_table(
        "plan",
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_plan")),
    )
    op.create_table(
        "sweep",
        sa.Column("number", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("settings", sa.Text(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("result", sa.Text(), nullable=True),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("finished", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_sweep")),
        sa.UniqueConstraint("id", name=op.f("uq_sweep_id")),
    )
    op.create_table(
        "chain",
        sa.Column("plan", sa.String(length=64), nullable=False),
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("nodes", sa.Text(), nullable=False),
        sa.Column("points", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["plan"], ["plan.digest"], name=op.f("fk_chain_plan")),
        sa.PrimaryKeyConstraint("plan", "id", name=op.f("pk_chain")),
    )
    op.create_table(
        "model",
        sa.Column("artifact", sa.String(length=64), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("inspection", sa.Text(), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["artifact"], ["artifact.digest"], name=op.f("fk_model_artifact")),
        sa.PrimaryKeyConstraint("artifact", name=op.f("pk_model")),
    )
    op.create_table(
        "run",
        sa.Column("number", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("identity", sa.String(length=64), nullable=False),
        sa.Column("model", sa.String(length=64), nullable=False),
        sa.Column("plan", sa.String(length=64), nullable=False),
        sa.Column("settings", sa.Text(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("result", sa.Text(), nullable=True),
        sa.Column("sweep", sa.String(length=64), nullable=True),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("lease", sa.Double(), nullable=True),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("finished", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["model"], ["artifact.digest"], name=op.f("fk_run_model")),
        sa.ForeignKeyConstraint(["plan"], ["plan.digest"], name=op.f("fk_run_plan")),
        sa.ForeignKeyConstraint(["sweep"], ["sweep.id"], name=op.f("fk_run_sweep")),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_run")),
        sa.UniqueConstraint("id", name=op.f("uq_run_id")),
    )
    op.create_index(op.f("ix_run_identity"), "run", ["identity"], unique=False)
    op.create_index(op.f("ix_run_model"), "run", ["model"], unique=False)
    op.create_index(op.f("ix_run_sweep"), "run", ["sweep"], unique=False)
    op.create_table(
        "evaluation",
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("outcome", sa.String(length=16), nullable=True),
        sa.Column("artifact", sa.String(length=64), nullable=True),
        sa.Column("session_options", sa.Text(), nullable=True),
        sa.Column("candidate", sa.String(length=64), nullable=True),
        sa.Column("meter", sa.Text(), nullable=False),
        sa.Column("details", sa.Text(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("environment", sa.String(length=64), nullable=True),
        sa.Column("run", sa.String(length=64), nullable=True),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("lease", sa.Double(), nullable=True),
        sa.Column("finished", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["artifact"], ["artifact.digest"], name=op.f("fk_evaluation_artifact")),
        sa.ForeignKeyConstraint(["environment"], ["environment.digest"], name=op.f("fk_evaluation_environment")),
        sa.ForeignKeyConstraint(["run"], ["run.id"], name=op.f("fk_evaluation_run"), ondelete="SET NULL"),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_evaluation")),
    )
    op.create_index(op.f("ix_evaluation_artifact"), "evaluation", ["artifact"], unique=False)
    op.create_index(op.f("ix_evaluation_candidate"), "evaluation", ["candidate"], unique=False)
    op.create_index(op.f("ix_evaluation_run"), "evaluation", ["run"], unique=False)
    op.create_table(
        "event",
        sa.Column("number", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("time", sa.Double(), nullable=False),
        sa.Column("kind", sa.String(length=64), nullable=False),
        sa.Column("run", sa.String(length=64), nullable=True),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run"], ["run.id"], name=op.f("fk_event_run"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_event")),
        sa.UniqueConstraint("id", name=op.f("uq_event_id")),
    )
    op.create_index("ix_event_kind_subject", "event", ["kind", "subject"], unique=False)
    op.create_index(op.f("ix_event_run"), "event", ["run"], unique=False)
    op.create_table(
        "pass_run",
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("outcome", sa.String(length=16), nullable=True),
        sa.Column("pass_name", sa.Text(), nullable=False),
        sa.Column("node", sa.Text(), nullable=True),
        sa.Column("params", sa.Text(), nullable=False),
        sa.Column("input_artifact", sa.String(length=64), nullable=True),
        sa.Column("input_options", sa.Text(), nullable=True),
        sa.Column("input_key", sa.String(length=64), nullable=True),
        sa.Column("output_artifact", sa.String(length=64), nullable=True),
        sa.Column("output_options", sa.Text(), nullable=True),
        sa.Column("output_key", sa.String(length=64), nullable=True),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("environment", sa.String(length=64), nullable=True),
        sa.Column("attempts", sa.Text(), nullable=False),
        sa.Column("reports", sa.Text(), nullable=False),
        sa.Column("run", sa.String(length=64), nullable=True),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("lease", sa.Double(), nullable=True),
        sa.Column("finished", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["environment"], ["environment.digest"], name=op.f("fk_pass_run_environment")),
        sa.ForeignKeyConstraint(["input_artifact"], ["artifact.digest"], name=op.f("fk_pass_run_input_artifact")),
        sa.ForeignKeyConstraint(["output_artifact"], ["artifact.digest"], name=op.f("fk_pass_run_output_artifact")),
        sa.ForeignKeyConstraint(["run"], ["run.id"], name=op.f("fk_pass_run_run"), ondelete="SET NULL"),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_pass_run")),
    )
    op.create_index(op.f("ix_pass_run_input_artifact"), "pass_run", ["input_artifact"], unique=False)
    op.create_index(op.f("ix_pass_run_input_key"), "pass_run", ["input_key"], unique=False)
    op.create_index(op.f("ix_pass_run_output_artifact"), "pass_run", ["output_artifact"], unique=False)
    op.create_index(op.f("ix_pass_run_output_key"), "pass_run", ["output_key"], unique=False)
    op.create_index(op.f("ix_pass_run_run"), "pass_run", ["run"], unique=False)
    op.create_table(
        "trial",
        sa.Column("run", sa.String(length=64), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("chain", sa.String(length=64), nullable=False),
        sa.Column("point", sa.Text(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("outcome", sa.String(length=16), nullable=True),
        sa.Column("artifact", sa.String(length=64), nullable=True),
        sa.Column("session_options", sa.Text(), nullable=True),
        sa.Column("metrics", sa.Text(), nullable=False),
        sa.Column("ratios", sa.Text(), nullable=False),
        sa.Column("details", sa.Text(), nullable=False),
        sa.Column("violation", sa.Double(), nullable=True),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("lease", sa.Double(), nullable=True),
        sa.Column("pass_runs", sa.Text(), nullable=False),
        sa.Column("evaluations", sa.Text(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("finished", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["artifact"], ["artifact.digest"], name=op.f("fk_trial_artifact")),
        sa.ForeignKeyConstraint(["run"], ["run.id"], name=op.f("fk_trial_run"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run", "number", name=op.f("pk_trial")),
    )
    op.create_index(op.f("ix_trial_artifact"), "trial", ["artifact"], unique=False)
    op.create_index("ix_trial_run_chain_status", "trial", ["run", "chain", "status"], unique=False)
    op.create_table(
        "metric_value",
        sa.Column("evaluation", sa.String(length=64), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("metric", sa.String(length=128), nullable=False),
        sa.Column("value", sa.Double(), nullable=True),
        sa.Column("low", sa.Double(), nullable=True),
        sa.Column("high", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["evaluation"], ["evaluation.key"], name=op.f("fk_metric_value_evaluation"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("evaluation", "role", "metric", name=op.f("pk_metric_value")),
    )
