"""The answer of a run in a sentence: faster, not faster, or undecided with what would decide it."""

from __future__ import annotations

from typing import Literal, TypeAlias

from autoopt.errors import one_line
from autoopt.metrics import FIRST_TOKEN, MEDIAN_LATENCY, is_ratio_metric
from autoopt.option_names import option
from autoopt.report.words.change import change_text, words_of
from autoopt.report.words.formatting import percent, plural, short
from autoopt.results import ModelResult, RunResult
from autoopt.results.figures import first_objective, is_quality, metrics_of

Answer: TypeAlias = Literal["better", "not better", "undecided", "none"]
"""`none`: no model meets the constraints."""


def answer(result: RunResult) -> Answer:
    """The answer to whether the run found a better model than the source."""
    if result.best is None:
        return "none"
    if not result.best.is_source:
        return "better"
    if result.undecided or _lacks_candidates(result):
        return "undecided"
    return "not better"


def verdict(result: RunResult) -> str:
    """The answer in a sentence or two: `1.6x faster (1.5 to 1.6), 3.5x smaller`, and what would decide an open one."""
    return " ".join(verdict_lines(result))


def verdict_lines(result: RunResult) -> list[str]:
    """The sentences of the answer; those on the best lossy model of a run without data come last."""
    lossy = result.best_lossy
    if lossy is None:
        return _answer_lines(result)
    first, *others = _answer_lines(result)
    gain = ", ".join(gains(result, lossy)) or lossy.short_chain
    lossless = f"{first[:1].lower()}{first[1:]}".replace(": ", ", ", 1)
    lines = [f"Lossless: {lossless}", *others, f"Lossy: {gain}."]
    return [*lines, "The lossy model is unverified: it was compared on generated inputs only."]


def lossy_steps(result: RunResult) -> list[str]:
    """The next steps for the lossy models of a run without data; none without such a run."""
    model = result.best_lossy
    if model is None:
        infeasible = result.trial_counts.get("infeasible", 0)
        if not result.lacks_data or not infeasible:
            return []
        models = plural(infeasible, "lossy model")
        return [f"{models} broke the limit on generated inputs; {option('data', of='FILE')} judges by accuracy"]
    steps = [f"Judge the lossy model by accuracy: run it again with {option('data', of='FILE')}"]
    if model.trial is not None:
        steps.append(f"Use it as it is: autoopt export {short(result.run)} {model.trial}")
    return steps


def _answer_lines(result: RunResult) -> list[str]:
    """The sentences on the best model."""
    if result.is_interim and result.parts:
        return ["So far: the models are not measured together yet."]
    if result.is_interim:
        said = "no model meets the constraints"
        if result.best is not None:
            said = ", ".join(gains(result, result.best)) or result.best.short_chain
            if result.best.is_source:
                said = "no candidate is measurably better than your model"
        return [f"So far: {said}."]
    if result.best is None:
        return ["No model meets the constraints."]
    if result.best.is_source:
        return _kept_answer(result)
    fallen = result.best.measured.fallen_class
    if fallen is not None:
        change = f"recall {percent(fallen.after)}, was {percent(fallen.before)}"
        return [*_better_answer(result, result.best), f"Class {one_line(fallen.name)} fell most: {change}."]
    return _better_answer(result, result.best)


def _better_answer(result: RunResult, best: ModelResult) -> list[str]:
    """The sentences on a model that is better than the source."""
    text = ", ".join(gains(result, best))
    sentence = f"{text[:1].upper()}{text[1:]}." if text else f"Best: {best.short_chain}."
    if result.undecided:
        return [sentence, f"Still open: {result.undecided}.", deciding_action(result)]
    if best.unsure:
        stays = "stay within their limits"
        if len(best.unsure) == 1:
            stays = "stays within its limit"
        doubt = f"Not certain yet: whether {' and '.join(best.unsure)} {stays}."
        return [sentence, f"{doubt} More evaluation data would decide."]
    return [sentence]


def _kept_answer(result: RunResult) -> list[str]:
    """The answer of a run that keeps the source model."""
    if _was_cut_off(result):
        action = f"To decide, allow more time ({option('minutes')})."
        reason = result.undecided or "the time was up before a candidate was measured"
        return [f"Undecided: {reason}; keeping your model.", action]
    if _lacks_candidates(result):
        total = result.trial_counts["total"]
        trials = "the only trial" if total == 1 else f"each of {total} trials"
        return [f"Undecided: {trials} failed to give a model that could be measured; keeping your model."]
    measured = result.trial_counts.get("ok", 0)
    if measured and result.trial_counts.get("infeasible", 0) == measured:
        candidates = {1: "the only candidate"}.get(measured, f"each of {measured} candidates")
        return [f"No gain within the limits: {candidates} broke one; your model stays.", *_time_lines(result)]
    metric = first_objective(result).metric
    word, verb = "better", "is"
    if is_ratio_metric(metric) or metric == "throughput":
        word, verb = words_of(metric).better, words_of(metric).verb
    lines = [f"Not {word}: no candidate was measurably better, so your model stays."]
    if result.undecided:
        lines = [f"Undecided whether a candidate {verb} {word}; keeping your model.", deciding_action(result)]
    return [*lines, *_time_lines(result)]


def _time_lines(result: RunResult) -> list[str]:
    """Say what a run that ran out of time might still have gained."""
    if result.time_limit is None:
        return []
    trials = plural(result.trial_counts.get("total", 0), "trial")
    return [f"The time was up after {trials}; more time ({option('minutes')}) allows more."]


def gains(result: RunResult, model: ModelResult) -> list[str]:
    """The changes from the source to a model that matter to the run, the first objective first."""
    source = result.baseline.metrics
    texts = [change_text(metric, model, source, result.constraints) for metric in headlines(result)]
    if model.measured.identical_outputs:
        texts.append("identical outputs")
    return [text for text in texts if text]


def deciding_action(result: RunResult) -> str:
    """The one action that would decide which model is the best."""
    if result.best is not None and result.best.measured.busy:
        return f"To decide, run it again with {option('again', 'measurements')} on a quieter machine."
    return "To decide, run it again: it measures on."


def headlines(result: RunResult) -> list[str]:
    """The objectives, then the latency, the size and the quality, each if it was measured.

    For a model that generates text, the latency is the time to the first token.
    """
    measured = metrics_of(result)
    names = [objective.metric for objective in result.objectives or (first_objective(result),)]
    constrained = [constraint.metric for constraint in result.constraints if is_quality(constraint.metric)]
    quality = constrained or [name for name in measured if is_quality(name)][:1]
    latency = FIRST_TOKEN if FIRST_TOKEN in measured else MEDIAN_LATENCY
    return list(dict.fromkeys((*names, latency, "size", *quality)))


def _was_cut_off(result: RunResult) -> bool:
    """True if the time limit of the run ended it before a trial succeeded or failed for another reason."""
    failures = result.trial_counts.get("total", 0) - result.trial_counts.get("timeout", 0)
    return result.time_limit is not None and not failures


def _lacks_candidates(result: RunResult) -> bool:
    """True if no trial succeeded, so that nothing is known about other models."""
    return _was_cut_off(result) or (result.trial_counts.get("total", 0) > 0 and not result.trial_counts.get("ok"))
