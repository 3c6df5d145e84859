"""Options that say what a good model is: what to minimize, and how much quality it may cost."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from autoopt.cli.completion import complete_metric

QualityMetric = Annotated[
    str | None,
    typer.Option(
        "--metric",
        metavar="NAME",
        help="Quality metric to keep [default: by the labels].",
        autocompletion=complete_metric,
    ),
]
MaxDrop = Annotated[
    float | None, typer.Option(min=0, help="Largest accepted drop in the quality metric [default: 0.01].")
]
Minimize = Annotated[
    Literal["latency", "size", "memory"] | None, typer.Option(help="What to minimize [default: latency].")
]
