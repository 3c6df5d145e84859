"""Export, import and summarize knowledge."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from autoopt.engine.planning.first_points import Question, sources_for
from autoopt.engine.planning.imported_knowledge import (
    ImportedKnowledge,
    add_knowledge,
    imported_knowledge,
    remove_knowledge,
)
from autoopt.engine.planning.lessons import LATENCY, QUALITY, NamedLesson, all_lessons, own_lessons
from autoopt.engine.work.environment import library_version
from autoopt.errors import InputError
from autoopt.model.similarity import similarity
from autoopt.results.knowledge import MAX_LESSONS, Knowledge, Lesson, PassEffect, read_knowledge
from autoopt.search.surrogates.effects import Effect, Factor, Scale, pooled_effects
from autoopt.spec.reader import MAX_BYTES
from autoopt.store import Store
from autoopt.working_folder import replacing

SHARPNESS: Final = 4
"""Exponent of the similarity in the weight of a lesson."""
SUFFIX: Final = ".json"
INTERVAL: Final = 1.96
"""Standard deviations to each side of a mean that hold 95 %."""


@dataclass(frozen=True)
class Exported:
    """The lessons of a file."""

    lessons: int
    left_out: int
    """Lessons of older runs, for which there was no room."""


def export_knowledge(store: Store, file: Path) -> Exported:
    """Write the lessons of the store's own runs into a file, as many of the newest as it can hold.

    Raises:
        InputError: There is no finished run, the file's name does not end in .json, or its folder does not exist.
    """
    _check_suffix(file)
    if file.is_dir() or not file.absolute().parent.is_dir():
        raise InputError("must be a file in a folder that exists", where=str(file))
    lessons = [named.lesson for named in own_lessons(store)]
    if not lessons:
        raise InputError("the store has no finished run to learn from", remedy="run 'autoopt run model.onnx' first")
    # As many of the newest lessons as one file can hold.
    fitting: list[Lesson] = []
    room = MAX_BYTES - 1024
    for lesson in lessons[:MAX_LESSONS]:
        room -= len(json.dumps(lesson.model_dump(mode="json", exclude_defaults=True)))
        if room < 0:
            break
        fitting.append(lesson)
    knowledge = Knowledge.of(tuple(fitting), library_version("autoopt"))
    with replacing(file) as new:
        knowledge.write(new)
    return Exported(len(knowledge.lessons), len(lessons) - len(knowledge.lessons))


def import_knowledge(store: Store, file: Path) -> tuple[Knowledge, bool]:
    """Import a file; also return False if the store had it already.

    Raises:
        InputError: The file's name does not end in .json.
        ConfigError: The file is not knowledge, or was edited.
    """
    _check_suffix(file)
    knowledge = read_knowledge(file)
    return knowledge, add_knowledge(store, knowledge, file.name)


def _check_suffix(file: Path) -> None:
    if file.suffix != SUFFIX:
        raise InputError(f"the name of a file of knowledge ends in {SUFFIX}", where=str(file))


def remove_imported(store: Store, name: str) -> ImportedKnowledge:
    """Remove imported knowledge, named by its file or by the beginning of its digest.

    Raises:
        InputError: Nothing or several things match.
    """
    if not name:
        raise InputError("must not be empty", where="NAME", remedy="'autoopt knowledge show' lists what was imported")
    items = [item for item in imported_knowledge(store) if item.file == name or item.knowledge.digest.startswith(name)]
    if len(items) != 1:
        reason = "several imported files match" if items else "no such imported knowledge"
        raise InputError(reason, where=name, remedy="'autoopt knowledge show' lists what was imported")
    remove_knowledge(store, items[0])
    return items[0]


@dataclass(frozen=True)
class KnownEffect:
    """The effect of a pass, or of one value of its parameter, to expect on a model."""

    pass_name: str
    parameter: str | None
    value: str
    """As JSON."""
    models: int
    trials: int
    rejected: int
    """Trials that failed or broke a constraint."""
    ratio: tuple[float, float, float] | None
    """Expected factor on the median latency, with the bounds of its 95 % interval."""
    quality: tuple[float, float, float] | None
    """Expected change of the share of right or agreeing outputs, likewise."""


@dataclass(frozen=True)
class KnownEffects:
    """The effects that lessons tell about a model."""

    effects: tuple[KnownEffect, ...]
    used: tuple[NamedLesson, ...]
    """The lessons that count most come first."""
    text: str
    """The lessons by origin, and those that were left out."""


def known_effects(store: Store | None, question: Question) -> KnownEffects:
    """The effects of passes and values to expect on a model, the most certain gains first.

    The weight of a lesson is `similarity ** SHARPNESS`: in benchmarks/search, ratios on models that were left out were
    predicted better than with a threshold, with equal weights, or by a Gaussian process over features of the models.
    """
    sources = sources_for(question, all_lessons(store))
    weighted: list[tuple[float, NamedLesson]] = []
    for source in sources.used:
        alike = similarity(question.inspection, source.named.lesson.model.inspection)
        if alike:
            weighted.append((source.weight * alike**SHARPNESS, source.named))
    weighted.sort(key=lambda pair: -pair[0])
    lessons = [(weight, named.lesson) for weight, named in weighted]
    return KnownEffects(tuple(_pooled(lessons)), tuple(named for _, named in weighted), sources.text)


def _pooled(lessons: Sequence[tuple[float, Lesson]]) -> list[KnownEffect]:
    latency = _pooled_by(lessons, "latency", LATENCY)
    quality = _pooled_by(lessons, "quality", QUALITY)
    effects_by_factor: dict[Factor, list[PassEffect]] = {}
    for _, lesson in lessons:
        for effect in lesson.effects:
            effects_by_factor.setdefault(_factor(effect), []).append(effect)
    effects: list[KnownEffect] = []
    for factor, mine in effects_by_factor.items():
        ratio = _interval(latency.get(factor))
        effects.append(
            KnownEffect(
                pass_name=factor.pass_name,
                parameter=factor.parameter or None,
                value=factor.value,
                models=len(mine),
                trials=sum(effect.trials for effect in mine),
                rejected=sum(effect.rejected for effect in mine),
                ratio=ratio and (math.exp(ratio[0]), math.exp(ratio[1]), math.exp(ratio[2])),
                quality=_interval(quality.get(factor)),
            )
        )
    return sorted(effects, key=lambda effect: effect.ratio[2] if effect.ratio else math.inf)


def _pooled_by(lessons: Sequence[tuple[float, Lesson]], kind: str, scale: Scale) -> dict[Factor, Effect]:
    sources = []
    for weight, lesson in lessons:
        effects: dict[Factor, Effect] = {}
        for effect in lesson.effects:
            spread = effect.latency if kind == "latency" else effect.quality
            if spread is not None:
                effects[_factor(effect)] = Effect(spread.mean, spread.deviation**2)
        sources.append((weight, effects))
    return pooled_effects(sources, scale)


def _factor(effect: PassEffect) -> Factor:
    if effect.parameter is None:
        return Factor(effect.pass_name)
    return Factor(effect.pass_name, effect.parameter, json.dumps(effect.value))


def _interval(effect: Effect | None) -> tuple[float, float, float] | None:
    if effect is None:
        return None
    half = INTERVAL * effect.deviation
    return effect.mean, effect.mean - half, effect.mean + half
