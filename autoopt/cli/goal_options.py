"""Options that say what a good model is: what to minimize, and how much quality it may cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from autoopt.cli.completion import complete_metric

if TYPE_CHECKING:
    from autoopt.engine.planning.goal import GoalOptions


@dataclass(frozen=True)
class GoalFlags:
    """The options as given; None for those that are not."""

    metric: Annotated[
        str | None,
        typer.Option(
            "--metric",
            metavar="NAME",
            help="Quality metric to keep [default: by the labels].",
            autocompletion=complete_metric,
        ),
    ] = None
    max_drop: Annotated[
        float | None, typer.Option(min=0, help="Largest accepted drop in the quality metric [default: 0.01].")
    ] = None
    minimize: Annotated[
        Literal["latency", "size", "memory"] | None, typer.Option(help="What to minimize [default: latency].")
    ] = None

    def options(self) -> GoalOptions:
        """The options as the engine takes them."""
        # Imported only now: it loads the search, which --help does not need.
        from autoopt.engine.planning.goal import GoalOptions

        return GoalOptions(self.minimize, self.metric, self.max_drop)
