"""Runs as Python programs and notebooks use them: the result of a run with its trials, tables, charts and report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from autoopt.errors import InputError, writing
from autoopt.metrics import Estimate
from autoopt.report.charts import trade_off, trade_offs
from autoopt.report.drawing import in_notebook
from autoopt.report.pages import render
from autoopt.report.run_lists import RunRow, runs_table
from autoopt.report.run_view import RunView, labelled_models
from autoopt.report.table import plain
from autoopt.report.words.verdict import verdict
from autoopt.results import ModelResult, RunResult, Trial, values_of
from autoopt.results.figures import first_objective
from autoopt.results.trial import flat_params, flat_ratios
from autoopt.settings import settings
from autoopt.space import Point
from autoopt.store import RunRecord, Store, open_store, store_exists
from autoopt.store.finished import finished_trials, has_result, result_of

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd


@dataclass(frozen=True, repr=False)
class Run(RunResult):
    """The result of a run, with what the store knows about it."""

    best: ModelResult = field(default_factory=ModelResult)
    """The best model; the source model if none meets the constraints, which `status` says."""
    result: RunResult = field(default=RunResult("", ""), repr=False)
    """The result as commands show it."""
    home: Path | None = field(default=None, repr=False, compare=False)
    """Folder of the store; None for AUTOOPT_HOME."""
    db_url: str | None = field(default=None, repr=False, compare=False)
    out: Path | None = field(default=None, repr=False, compare=False)
    """Folder with the package of the best model; None if none was written."""

    @staticmethod
    def of(result: RunResult, home: Path | None = None, db_url: str | None = None, out: Path | None = None) -> Run:
        """Add the place of the store and of the package to a result."""
        values = {item.name: getattr(result, item.name) for item in fields(RunResult)}
        values["best"] = result.best or result.baseline
        return Run(**values, result=result, home=home, db_url=db_url, out=out)

    def to_json(self) -> dict[str, object]:
        """Convert to the document that `autoopt run --json` prints."""
        return self.result.to_json()

    def completed_trials(self) -> list[Trial]:
        """The finished trials by number; for a run over several targets or models, one after the other."""
        return [trial for _, trial in self._trials_by_part()]

    @cached_property
    def trials(self) -> pd.DataFrame:
        """The finished trials as a table: number, chain, outcome, metrics, ratios with bounds, parameters.

        Over several targets or models, the column `target` or `part` has the name of each. The metrics of the source
        and the ratios of the objectives have columns even if no trial measured them.

        Raises:
            InputError: pandas is not installed.
        """
        part = "target" if self.targets else "part"
        rows = []
        for name, trial in self._trials_by_part():
            row: dict[str, object] = {part: name} if name else {}
            row |= {"trial": trial.number, "chain": trial.chain, "outcome": str(trial.outcome)}
            row |= {"feasible": trial.feasible, **_figures(values_of(trial.metrics), trial.ratios, trial.point)}
            rows.append({**row, "seconds": trial.seconds, "message": trial.explanation})
        frame = _frame(rows)
        # Without a successful trial the columns stay, so that programs can still filter and sort.
        ratios = {objective.metric: Estimate.exact(1.0) for objective in self.objectives}
        figures = [*ratios, *self.baseline.metrics, *flat_ratios(ratios)]
        columns = dict.fromkeys(
            [*frame.columns, "trial", "chain", "outcome", "feasible", *figures, "seconds", "message"]
        )
        return frame.reindex(columns=list(columns)).astype({"feasible": bool})

    @cached_property
    def pareto(self) -> pd.DataFrame:
        """The source, the best model, the best lossy one and the rest of the front as a table, as in `trials`.

        Raises:
            InputError: pandas is not installed.
        """
        rows = []
        for label, model in labelled_models(self.result):
            figures = _figures(model.metrics, model.ratios, model.point)
            rows.append({"model": label, "chain": model.chain, **figures, "artifact": model.artifact})
        return _frame(rows)

    def plot_pareto(self, metric: str | None = None) -> alt.LayerChart:
        """Chart the first objective against `metric`; by default against the metric that matters next.

        Raises:
            InputError: Altair is not installed, or no trial has both metrics.
        """
        trials = self.completed_trials()
        charts = trade_offs(self.result, trials)
        chart = trade_off(self.result, trials, metric) if metric else next(iter(charts.values()), None)
        if chart is None:
            objective = first_objective(self).metric
            raise InputError(f"no trial has {objective} and {metric or 'another metric'}", where=f"run {self.run}")
        return in_notebook(chart)

    def report(self, file: str | Path) -> Path:
        """Write the HTML page of the run, as `autoopt report` does; return its path.

        Raises:
            InputError: the file cannot be written, or has something that autoopt did not write.
        """
        from autoopt.engine.tools.run_report import run_report
        from autoopt.report.pages import check_page

        with writing(file, "cannot write the report"):
            check_page(Path(file))
        with _open(self.home, self.db_url) as store:
            page = run_report(store, store.runs.get(self.run), self.result, profile=True)
        with writing(file, "cannot write the report"):
            Path(file).write_text(page, encoding="utf-8", errors="backslashreplace")
        return Path(file)

    def _trials_by_part(self) -> list[tuple[str, Trial]]:
        """The finished trials, each with the name of its target or model; the name is empty if there is one."""
        named = [(target.name, target.result.run) for target in self.targets]
        named += [(part.name, part.result.run) for part in self.parts]
        with _open(self.home, self.db_url) as store:
            return [(name, trial) for name, run in named or [("", self.run)] for trial in finished_trials(store, run)]

    def __repr__(self) -> str:
        return f"Run({self.run!r}, {verdict(self.result)!r})"

    def _repr_html_(self) -> str:
        """The answer and the tables, for notebooks."""
        return render("tables.html", lines=[verdict(self.result)], tables=RunView(self.result).tables)


class RunList(tuple[RunRow, ...]):
    """Runs, newest first; a table in notebooks."""

    def __repr__(self) -> str:
        return plain(runs_table(self)) if self else "no runs"

    def _repr_html_(self) -> str:
        return render("tables.html", lines=[] if self else ["no runs"], tables=[runs_table(self)])


def runs(limit: int = 20, *, home: Path | None = None) -> RunList:
    """List the newest runs of the store, as `autoopt runs` does.

    There are at most `limit`, from the store in the folder `home` (AUTOOPT_HOME by default).
    """
    with _open(home) as store:
        return RunList(run_row(store, record) for record in store.runs.newest(limit))


def load_run(run: str = "latest", *, home: Path | None = None) -> Run:
    """Read a run from the store; one that has not finished has the best of its trials so far.

    Args:
        run: a run's id, the beginning of one, or `latest`.
        home: folder of the store; AUTOOPT_HOME by default.

    Raises:
        InputError: there is no such run, or it has no trial yet.
    """
    with _open(home) as store:
        return Run.of(result_of(store.runs.get(run)), home)


def run_row(store: Store, run: RunRecord) -> RunRow:
    """A run as lists show it."""
    names = run.settings or {}
    name = names.get("model")
    if not name:
        model = store.models.get(run.model)
        name = model.name if model is not None else run.model
    result = None
    if has_result(run):
        with suppress(InputError):  # one that cannot be read hides no other run
            result = result_of(run)
    return RunRow(run.id, names.get("dag", ""), name, run.shown_status, run.created, result)


@contextmanager
def _open(home: Path | None, db_url: str | None = None) -> Iterator[Store]:
    """Open a store that exists."""
    if not store_exists(db_url, home):
        remedy = "autoopt.run creates one; set AUTOOPT_HOME or home="
        raise InputError("no store here", where=str(home or settings().home), remedy=remedy)
    with open_store(db_url, home) as store:
        yield store


def _figures(metrics: Mapping[str, float], ratios: Mapping[str, Estimate], point: Point) -> dict[str, object]:
    """Columns `latency_p50`, `latency_p50_ratio` with `_low` and `_high`, and `node.parameter`."""
    return {**metrics, **flat_ratios(ratios), **flat_params(point)}


def _frame(rows: list[dict[str, object]]) -> pd.DataFrame:
    """A pandas table."""
    try:
        import pandas as pd
    except ImportError:
        remedy = "pip install 'autoopt[notebook]'"
        raise InputError("data frames need pandas, which is not installed", remedy=remedy) from None
    return pd.DataFrame(rows)
