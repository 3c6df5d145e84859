"""Turn trials into models of the result: each candidate once, with its chain, parameters and measurements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

from autoopt import json_codec
from autoopt.engine.run.evidence import pooled_values
from autoopt.engine.work.context import RunContext
from autoopt.engine.work.evaluations import Measurements
from autoopt.errors import InputError
from autoopt.measure.request import IDLE_PROVIDER, SAME_GRAPH
from autoopt.measure.two_ratios import TwoRatios
from autoopt.metrics import Estimate
from autoopt.model.candidate import Candidate
from autoopt.outcome import Outcome
from autoopt.results import SOURCE, MeasurementSummary, ModelResult, ProfileResult, ThroughputResult, Trial, values_of
from autoopt.results.trial import ARROW
from autoopt.store import EvaluationRecord, Store

ONE_THREAD = "measured on one thread too, because times on several were uncertain"
FREE_CORES = "the range reaches from free cores to a busy machine, where threads share them"
EQUALLY_FAST = "equally fast: the runtime executes the same graph as for the source"
DIFFERENT = 0.02
"""Error of a ratio, because both kinds of machines are meant, from which a caveat says so."""
TAKES_NOTHING = "takes no node of this model: the CPU provider runs all of it"
QUALITY = ("items", "identical_outputs", "fallen_class", "outputs", "kinds")
"""Details of the meters that compare outputs."""
SIDES = ("candidate", "source", "ratio")
Details: TypeAlias = Mapping[str, Any]
"""Details that the latency meter reports with one measurement."""
Summary: TypeAlias = tuple[MeasurementSummary, tuple[str, ...]]
"""A summary, and the caveats that follow from it."""


def stored_summary(ctx: RunContext, keys: Sequence[str]) -> Summary:
    """Summarize the stored evaluations with these keys."""
    stored = ctx.store.results.evaluations(keys)
    return summarize([stored[key] for key in dict.fromkeys(keys) if key in stored])


def summarize(records: Sequence[EvaluationRecord]) -> Summary:
    """Summarize how one candidate was measured. All its latency measurements count together."""
    fields: dict[str, object] = {}
    latencies: list[Details] = []
    ratios: dict[str, list[float]] = {}
    disturbed = 0
    for record in records:
        if not record.outcome.good:
            continue
        if record.meter == "latency":
            latencies.append(record.details)
            disturbed += record.disturbed
            for name, ratio in record.ratios.items():
                ratios.setdefault(name, []).append(ratio.value)
        else:
            fields |= {name: record.details[name] for name in QUALITY if name in record.details}
    if latencies:
        fields |= {**_latency(latencies), "disturbed_rounds": disturbed}
        fields["round_ratios"] = {name: (min(values), max(values)) for name, values in ratios.items()}
        options = records[0].candidate.session_options
        # The number of threads may be searched; then it is the candidate's own.
        fields["threads"] = options.get("intra_op_num_threads", fields["threads"])
    summary = json_codec.from_json(MeasurementSummary, fields)
    return summary, tuple(_caveats(latencies))


def _caveats(latencies: Sequence[Details]) -> Iterator[str]:
    """Yield what a reader of the latencies should know."""
    both = list(filter(None, map(TwoRatios.of, latencies)))
    if not all(each.has_free_cores for each in both):
        yield ONE_THREAD
    if any(each.has_free_cores and each.difference > DIFFERENT for each in both):
        yield FREE_CORES
    idle = next(filter(None, (details.get(IDLE_PROVIDER) for details in latencies)), None)
    if idle:
        yield f"{idle} {TAKES_NOTHING}"
    if any(details.get(SAME_GRAPH) for details in latencies):
        yield EQUALLY_FAST


def _latency(measured: Sequence[Details]) -> dict[str, object]:
    """The fields of the summary that come from latency measurements."""
    # Without profiles of inputs, a measurement has one unnamed part.
    parts: list[Mapping[str, Details]] = [details.get("profiles") or {"": details} for details in measured]
    first = next(iter(parts[0].values()))
    machine = first.get("machine", {})
    stopped: Counter[str] = Counter()
    pairs, repeats, paces = 0, 0.0, []
    for part in parts:
        for details in part.values():
            stopped[str(details.get("stopped", ""))] += 1
            pairs += int(details.get("pairs", 0))
            repeats += float(details.get("effective_repeats", 0))
            paces.append(details.get("pace") or 0.0)
    return {
        "rounds": len(measured),
        "counted_rounds": len(measured),
        "stopped": stopped,
        "pairs": pairs,
        "effective_repeats": round(repeats, 1),
        "replicas": first.get("replicas"),
        "threads": first.get("threads"),
        "affinity": machine.get("affinity") or (),
        "cores": machine.get("cores"),
        "batch_size": first.get("batch_size"),
        "pace": max(paces) or None,
        "throughput": _throughput(parts),
        "profiles": _profiles(parts),
    }


def _profiles(parts: Sequence[Mapping[str, Details]]) -> dict[str, ProfileResult]:
    """The latencies of each named profile, combined over the measurements."""
    profiles = {}
    for name in parts[0]:
        if name:
            measured = [part[name] for part in parts if name in part]
            metrics = _combined([details["metrics"] for details in measured])
            profiles[name] = ProfileResult(metrics, _combined([details["ratios"] for details in measured]))
    return profiles


def _throughput(parts: Sequence[Mapping[str, Details]]) -> list[ThroughputResult]:
    """One row for each profile, batch size and concurrency, combined over the measurements."""
    rows: dict[tuple[int, int, str], list[Details]] = {}
    for part in parts:
        for profile, details in part.items():
            for row in details.get("throughput", ()):
                rows.setdefault((row["batch_size"], row["concurrency"], profile), []).append(row)
    return [_throughput_row(*key, measured) for key, measured in rows.items()]


def _throughput_row(batch_size: int, concurrency: int, profile: str, measured: Sequence[Details]) -> ThroughputResult:
    for row in measured:
        if "refused" in row:
            return ThroughputResult(batch_size, concurrency, profile, refused=row["refused"])
    sides = [{side: row[side] for side in SIDES if side in row} for row in measured]
    candidate, source, ratio = map(_combined(sides).get, SIDES)
    return ThroughputResult(batch_size, concurrency, profile, candidate, source, ratio)


def _combined(measured: Sequence[Mapping[str, Details]]) -> dict[str, Estimate]:
    """Combine the estimates of several measurements, by name; names that one of them lacks are left out."""
    return pooled_values([json_codec.from_json(dict[str, Estimate], dict(estimates)) for estimates in measured])


UNVERIFIED: Final = "unverified: compared on generated inputs only"
"""Caveat of a lossy model of a run without data."""


def explain_no_result(trials: Sequence[Trial]) -> list[str]:
    """Say in a sentence how close the trials of a run came to a result; empty if some have one."""
    nearest = explain_nearest(trials)
    if nearest:
        return nearest
    if trials and all(trial.outcome is not Outcome.OK for trial in trials):
        first = trials[0]
        return [f"no trial succeeded; trial {first.number}: {first.outcome}, {first.message}"]
    return []


def explain_nearest(trials: Sequence[Trial]) -> list[str]:
    """Say in a sentence which trial that breaks a constraint came closest to it; empty if none breaks one."""
    broken = [trial for trial in trials if trial.outcome is Outcome.OK and trial.violation > 0]
    if not broken:
        return []
    nearest = min(broken, key=lambda trial: trial.violation)
    return [f"trial {nearest.number} came closest to the constraints: {'; '.join(nearest.reasons)}"]


def explain_untried(trials: Sequence[Trial]) -> list[str]:
    """Say in a sentence which trials failed for a reason that may lie outside the model, and how to try them again."""
    untried = [trial for trial in trials if trial.transient]
    if not untried:
        return []
    numbers = ", ".join(str(trial.number) for trial in untried)
    noun = "trial" if len(untried) == 1 else "trials"
    reason = f"{untried[0].outcome}, {untried[0].message}"
    return [f"not tried: {noun} {numbers} ({reason}); run it again to try what is missing"]


def waiting_text(seconds: float) -> str:
    """`waited 40 s for other runs on this machine`; empty for less than a second."""
    return f"waited {seconds:.0f} s for other runs on this machine" if seconds >= 1 else ""


def explain_waiting(seconds: float, total: float) -> list[str]:
    """Say how long the run waited for others, if that was more than a quarter of its time."""
    return [f"{waiting_text(seconds)}, of {total:.0f} s"] if seconds > max(1.0, total / 4) else []


def explain_repeats(trials: Sequence[Trial]) -> list[str]:
    """Say in a sentence how many of the trials differ; empty if all do."""
    keys = [trial.model_key for trial in trials if trial.model_key]
    repeats = len(keys) - len(set(keys))
    if not repeats:
        return []
    return [f"{repeats} of {len(keys)} trials repeated another one's model"]


def source_model(ctx: RunContext, baseline: Measurements) -> ModelResult:
    """The source model as a result; every ratio is exactly 1."""
    summary, caveats = stored_summary(ctx, baseline.keys)
    return ModelResult(
        artifact=ctx.problem.source.artifact,
        path=ctx.model_path(ctx.problem.source),
        session_options=dict(ctx.problem.source.session_options),
        chain=SOURCE,
        metrics=values_of(baseline.metrics),
        intervals=dict(baseline.metrics),
        ratios={name: Estimate.exact(1.0) for name, estimate in baseline.metrics.items() if estimate.value},
        flags=caveats,
        measured=summary,
    )


def trial_model(ctx: RunContext, trial: Trial) -> ModelResult:
    """The model of a feasible trial."""
    candidate = trial.candidate or ctx.problem.source
    model = _model_of(trial, candidate, ctx.model_path(candidate), stored_summary(ctx, trial.evaluations))
    if ctx.problem.unverified and ctx.is_lossy(trial):
        model = replace(model, flags=(UNVERIFIED, *model.flags))
    chain = ctx.chains.get(trial.chain_id)
    params: dict[str, Mapping[str, object]] = {}
    if chain is None:  # of another run
        for record in ctx.store.results.pass_runs(trial.pass_runs).values():
            params[record.node or record.pass_name] = record.params
    else:
        configs = chain.space.configs(trial.point)
        params = {node.id: configs[node.id] for node in chain.nodes}
    return replace(model, passes=tuple(trial.chain.split(ARROW)), params=params)


def recorded_model(store: Store, run: str, number: int) -> ModelResult:
    """The model of a trial, whether it meets the constraints or not, from the store alone.

    Raises:
        InputError: there is no such trial, or it made no model.
    """
    trial = store.trials.get(run, number)
    if trial.status != "done" or trial.candidate is None:
        reason = trial.explanation or trial.outcome or trial.status
        raise InputError(
            f"trial {number} of run {run} has no model ({reason})", remedy="'autoopt report' lists the trials"
        )
    evaluations = store.results.evaluations(trial.evaluations)
    summary = summarize([evaluations[key] for key in trial.evaluations if key in evaluations])
    path = str(store.artifacts.path(trial.candidate.artifact))
    return _model_of(trial, trial.candidate, path, summary)


def _model_of(result: Trial, candidate: Candidate, path: str, summary: Summary) -> ModelResult:
    """The candidate of a trial with its figures."""
    measured, caveats = summary
    return ModelResult(
        artifact=candidate.artifact,
        path=path,
        session_options=dict(candidate.session_options),
        chain=result.chain,
        metrics=values_of(result.metrics),
        intervals=dict(result.metrics),
        ratios=dict(result.ratios),
        point=result.point,
        flags=(*result.reasons, *caveats),
        unsure=result.unsure,
        measured=measured,
        intermediate=result.intermediate,
        steps=result.steps,
        trial=result.number,
    )


def distinct_feasible(trials: Sequence[Trial], source: Candidate) -> list[Trial]:
    """Select feasible trials of whole chains, one for each candidate other than the source.

    Of trials with the same candidate the one with the fewest passes is selected, then by chain id and number.
    """
    by_candidate: dict[str, Trial] = {}
    for trial in sorted(trials, key=lambda trial: (trial.pass_count, trial.chain_id, trial.number)):
        if trial.feasible and trial.upto is None and trial.model_key not in ("", source.key):
            by_candidate.setdefault(trial.model_key, trial)
    return list(by_candidate.values())
