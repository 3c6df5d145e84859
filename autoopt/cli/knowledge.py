"""`autoopt knowledge`: what finished runs showed about passes, for other stores."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autoopt.cli.output import AsJson, example_text, print_json, print_result
from autoopt.cli.store_access import existing_store

if TYPE_CHECKING:
    from autoopt.engine.planning.lessons import NamedLesson
    from autoopt.engine.tools.knowledge import KnownEffect, KnownEffects
    from autoopt.report.elements.table import Table

File = Annotated[Path, typer.Argument(metavar="FILE", help="A .json file.")]

NAMED_LESSONS = 5
"""Lessons whose models are named above the effects that they tell."""

app = typer.Typer(rich_markup_mode=None, no_args_is_help=False)


@app.command("export", epilog=example_text("autoopt knowledge export knowledge.json"))
def export_(file: File, as_json: AsJson = False) -> None:
    """Export what the runs of this store showed about passes.

    The file holds measured effects of passes and facts about models and machines; no models, data, paths or names.
    """
    from autoopt.engine.tools.knowledge import export_knowledge
    from autoopt.report.words.formatting import plural

    with existing_store() as store:
        exported = export_knowledge(store, file)
    text = f"wrote {file}: lessons of {plural(exported.lessons, 'run')}"
    if exported.left_out:
        text += f"; no room for {exported.left_out} older ones"
    document = {"path": str(file.absolute()), "lessons": exported.lessons, "left_out": exported.left_out}
    print_result(document, text, as_json)


@app.command("import", epilog=example_text("autoopt knowledge import knowledge.json"))
def import_(file: File, as_json: AsJson = False) -> None:
    """Import knowledge. Plans and runs use it like that of the store's own runs, and mark it as imported."""
    from autoopt.engine.tools.knowledge import import_knowledge
    from autoopt.report.words.formatting import plural
    from autoopt.store import open_store

    with open_store() as store:
        knowledge, is_new = import_knowledge(store, file)
    text = f"imported {plural(len(knowledge.lessons), 'lesson')}"
    if not is_new:
        text = "the store has this knowledge already"
    document = {"digest": knowledge.digest, "lessons": len(knowledge.lessons), "new": is_new}
    print_result(document, text, as_json)


@app.command("remove", epilog=example_text("autoopt knowledge remove knowledge.json"))
def remove_(
    name: Annotated[str, typer.Argument(metavar="FILE", help="Name or digest of an imported file.")],
    as_json: AsJson = False,
) -> None:
    """Remove imported knowledge."""
    from autoopt.engine.tools.knowledge import remove_imported
    from autoopt.report.words.formatting import plural

    with existing_store() as store:
        item = remove_imported(store, name)
    document = {"digest": item.knowledge.digest, "file": item.file}
    print_result(document, f"removed {item.file}: {plural(len(item.knowledge.lessons), 'lesson')}", as_json)


@app.command("show", epilog=example_text("autoopt knowledge show", "autoopt knowledge show model.onnx"))
def show_(
    model: Annotated[str | None, typer.Argument(metavar="MODEL", help="An ONNX model [default: all lessons].")] = None,
    as_json: AsJson = False,
) -> None:
    """List lessons: from this store, imported and built-in. With a model, list what they suggest for it.

    Suggestions are for this machine's CPU.
    """
    from autoopt.engine.planning.imported_knowledge import imported_knowledge
    from autoopt.engine.planning.lessons import all_lessons
    from autoopt.engine.planning.proposal import existing_store as store_if_any
    from autoopt.report.elements.table import write_table
    from autoopt.report.words.formatting import plural

    if model is not None:
        _show_effects(model, as_json)
        return
    with store_if_any() as store:
        lessons = list(all_lessons(store))
        imported = [] if store is None else imported_knowledge(store)
    if as_json:
        files = [{"file": item.file, "digest": item.knowledge.digest} for item in imported]
        rows = [{"name": named.model, **named.lesson.model_dump(mode="json")} for named in lessons]
        print_json({"imported": files, "lessons": rows})
        return
    for item in imported:
        count = plural(len(item.knowledge.lessons), "lesson")
        typer.echo(f"imported {item.file}: {count}, digest {item.knowledge.digest[:12]}")
    write_table(_lessons_table(lessons), sys.stdout)


def _show_effects(model: str, as_json: bool) -> None:
    from autoopt.engine.planning.best_candidate import Machine
    from autoopt.engine.planning.first_points import Question
    from autoopt.engine.planning.probe import Probe
    from autoopt.engine.planning.proposal import existing_store as store_if_any
    from autoopt.engine.tools.knowledge import known_effects
    from autoopt.engine.work.environment import cpu
    from autoopt.report.elements.table import write_table
    from autoopt.target import Target

    with store_if_any() as store, Probe() as probe:
        inspection = probe.inspect(Path(model))
        question = Question(inspection, Target(), Machine.of({}), frozenset(cpu()["flags"]))
        knowledge = known_effects(store, question)
    if as_json:
        from autoopt.json_codec import to_json

        lessons = [named.lesson.id for named in knowledge.used]
        print_json({"lessons": lessons, "sources": knowledge.text, "effects": to_json(knowledge.effects)})
        return
    typer.echo(_sources_text(knowledge))
    if knowledge.effects:
        write_table(_effects_table(knowledge.effects), sys.stdout)


def _sources_text(knowledge: KnownEffects) -> str:
    if not knowledge.used:
        return "nothing is known about such models"
    names = [named.model for named in knowledge.used]
    text = ", ".join(names[:NAMED_LESSONS])
    if len(names) > NAMED_LESSONS:
        text += f" and {len(names) - NAMED_LESSONS} more"
    return f"from {text}, the most similar first ({knowledge.text})"


def _lessons_table(lessons: list[NamedLesson]) -> Table:
    from autoopt.report.elements.table import Table

    rows: list[tuple[str, ...]] = []
    for named in lessons:
        lesson = named.lesson
        best = "source"
        if lesson.best is not None:
            ratio = lesson.best.ratios.get(lesson.goal.metric)
            best = ", ".join(lesson.best.passes)
            if ratio is not None:
                best += f": {ratio:.2f} of {lesson.goal.metric}"
        machine = ", ".join(filter(None, (lesson.machine.cpu, lesson.machine.runtime)))
        rows.append((named.model, lesson.goal.metric, str(lesson.trials), machine, best))
    return Table(("model", "objective", "trials", "CPU and runtime", "best"), tuple(rows), right=frozenset((2,)))


def _effects_table(effects: tuple[KnownEffect, ...]) -> Table:
    from autoopt.report.elements.table import Table

    rows: list[tuple[str, ...]] = []
    for effect in effects:
        ratio, quality = "-", "-"
        if effect.ratio is not None:
            ratio = f"{effect.ratio[0]:.2f} ({effect.ratio[1]:.2f} to {effect.ratio[2]:.2f})"
        if effect.quality is not None:
            quality = f"{effect.quality[0]:+.3f} ({effect.quality[1]:+.3f} to {effect.quality[2]:+.3f})"
        setting = f"{effect.parameter}={effect.value}" if effect.parameter else ""
        rows.append(
            (effect.pass_name, setting, ratio, quality, str(effect.models), str(effect.trials), str(effect.rejected))
        )
    columns = ("pass", "value", "factor on latency (95 %)", "change of quality", "models", "measured", "rejected")
    return Table(columns, tuple(rows), right=frozenset((4, 5, 6)))
