"""Knowledge: what finished runs measured about passes and their values, as a file for other stores.

The file holds no model, data, path or name: only facts about each model and machine, and effects. Anyone may have
written it, so it is read strictly, within limits, and only if its digest fits.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field, ValidationError

from autoopt.model.candidate import digest_json
from autoopt.model.inspection import Inspection
from autoopt.spec.reader import read_document
from autoopt.spec.strict_model import StrictModel
from autoopt.spec.validation import problems_of

FORMAT: Final = 2
"""Version 1 had no configurations."""
BUILT_IN_FILE: Final = Path(__file__).with_name("built_in_knowledge.json")
"""The file that autoopt ships; `python -m benchmarks.search knowledge` makes it."""
MAX_LESSONS: Final = 64
"""Lessons of one file: with more it would exceed the size that is read."""

MAX_EFFECTS: Final = 60
"""Effects of one lesson."""
MAX_CONFIGURATIONS: Final = 60
"""Configurations of one lesson."""

Word: TypeAlias = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_.:+@() -]+$")]
"""A name of a pass, a parameter, an operator, a CPU, a version."""
Digest: TypeAlias = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Count: TypeAlias = Annotated[int, Field(ge=0, le=10**15)]
Counts: TypeAlias = Annotated[dict[Word, Count], Field(max_length=500)]
Words: TypeAlias = Annotated[tuple[Word, ...], Field(strict=False, max_length=64)]
Scalar: TypeAlias = Annotated[int, Field(ge=-(10**15), le=10**15)] | Annotated[float, Field(ge=-1e15, le=1e15)]
Bound: TypeAlias = Annotated[float, Field(ge=-1e15, le=1e15)]
Setting: TypeAlias = bool | Scalar | Word | Annotated[list[Word], Field(max_length=64)] | None
"""A value of a parameter."""


class Spread(StrictModel):
    """A mean with its standard deviation."""

    mean: float = Field(ge=-1e6, le=1e6)
    deviation: float = Field(ge=0, le=1e6)


class PassEffect(StrictModel):
    """The effect of a pass, or of one value of its parameter, on one model, apart from all others in the trials."""

    pass_name: Word
    parameter: Word | None = None
    """None for the pass itself."""
    value: Setting = None
    latency: Spread | None = None
    """On the logarithm of the ratio of the median latency, candidate / source; None if it was not measured."""
    quality: Spread | None = None
    """On the metric of quality of the lesson, in its own unit."""
    trials: Count = 0
    """Trials that were measured with it."""
    rejected: Count = 0
    """Trials with it that failed or broke a constraint."""


class ModelFacts(StrictModel):
    """Facts about a model."""

    op_counts: Counts
    """Nodes by operator; `custom` is the sum over domains other than ONNX's and onnxruntime's."""
    layer_parameters: Counts = Field(default_factory=dict)
    """Elements of the weights of layers by operator."""
    layer_work: Counts = Field(default_factory=dict)
    """Multiplications by these weights in one inference; only their shares are meaningful."""
    weight_dtypes: Counts = Field(default_factory=dict)
    parameters: Count
    bytes: Count
    opset: Count

    @property
    def inspection(self) -> Inspection:
        """The facts as an inspection of a model without inputs and outputs."""
        return Inspection(
            inputs=(),
            outputs=(),
            opsets={"": self.opset},
            ir_version=0,
            op_counts=self.op_counts,
            parameters=self.parameters,
            bytes=self.bytes,
            weight_dtypes=self.weight_dtypes,
            layer_parameters=self.layer_parameters,
            layer_work=self.layer_work,
        )


class MachineFacts(StrictModel):
    """The machine and runtime that measured."""

    cpu: Word | None = None
    cores: Count | None = None
    isa: Words = ()
    """Instruction sets that matter for inference."""
    runtime: Word | None = None
    """Version of onnxruntime."""


class GoalFacts(StrictModel):
    """The question that a run answered."""

    metric: Word
    """First objective."""
    device: Word
    execution_provider: Word
    threads: int = Field(ge=0, le=4096)
    limits: Annotated[dict[Word, Annotated[dict[Word, Bound], Field(max_length=8)]], Field(max_length=16)] = Field(
        default_factory=dict
    )
    """Constraints: metric -> bound -> value; `custom` for a metric of a user's script."""


class Configuration(StrictModel):
    """The best candidate of a run: what changed the model, and what that gave."""

    passes: Annotated[tuple[Word, ...], Field(strict=False, min_length=1, max_length=64)]
    values: Annotated[dict[Word, Annotated[dict[Word, Setting], Field(max_length=64)]], Field(max_length=64)]
    """Pass -> parameter -> value that was searched."""
    ratios: Annotated[dict[Word, Annotated[float, Field(gt=0, le=1e6)]], Field(max_length=64)]
    """candidate / source by metric."""


class MeasuredConfiguration(StrictModel):
    """A candidate of a run: what changed the model, and what that gave."""

    passes: Annotated[
        dict[Word, Annotated[dict[Word, Setting], Field(max_length=64)]], Field(min_length=1, max_length=64)
    ]
    """Pass -> parameter -> value that is known."""
    ratio: Annotated[float, Field(gt=0, le=1e6)] | None = None
    """candidate / source of the median latency; None if it was not measured."""
    rejected: bool = False
    """It failed or broke a constraint."""


class Lesson(StrictModel):
    """The measurements of one run on one model."""

    id: Annotated[str, Field(pattern=r"^[0-9a-f]{12}$")]
    """Digest of the run's random id: tells whether two lessons are the same, and nothing else."""
    model: ModelFacts
    machine: MachineFacts
    goal: GoalFacts
    trials: Count
    quality_metric: Word | None = None
    best: Configuration | None = None
    """None if the source model was the best."""
    effects: Annotated[tuple[PassEffect, ...], Field(strict=False, max_length=MAX_EFFECTS)] = ()
    configurations: Annotated[
        tuple[MeasuredConfiguration, ...], Field(strict=False, max_length=MAX_CONFIGURATIONS)
    ] = ()

    @property
    def name(self) -> str:
        """A name for the model, which has none here."""
        return f"model {self.id[:6]}"


class Knowledge(StrictModel):
    """The content of a file of knowledge."""

    knowledge: Literal[1, 2] = FORMAT
    """Version of the format."""
    autoopt: Word
    lessons: Annotated[tuple[Lesson, ...], Field(strict=False, max_length=MAX_LESSONS)]
    digest: Digest

    @staticmethod
    def of(lessons: tuple[Lesson, ...], version: str) -> Knowledge:
        """Put lessons together, with the digest of their content."""
        content = {
            "knowledge": FORMAT,
            "autoopt": version,
            "lessons": [lesson.model_dump(mode="json", exclude_defaults=True) for lesson in lessons],
        }
        return Knowledge.model_validate({**content, "digest": digest_json(content)})

    @property
    def document(self) -> dict[str, object]:
        """The JSON document."""
        content: dict[str, object] = self.model_dump(mode="json", exclude_defaults=True)
        return {"knowledge": FORMAT, **content}

    def write(self, file: Path) -> None:
        """Write the file."""
        file.write_text(json.dumps(self.document, separators=(",", ":")) + "\n", encoding="utf-8")


@lru_cache
def built_in_knowledge() -> Knowledge:
    """The knowledge that autoopt ships."""
    # Tests read the shipped file with all checks, which take longer than everything else here.
    return Knowledge.model_validate_json(BUILT_IN_FILE.read_bytes())


def read_knowledge(file: Path) -> Knowledge:
    """Read a file of knowledge.

    Raises:
        ConfigError: The file cannot be read, is too large, is not knowledge of this format, or was edited; one line.
    """
    document = read_document(file)
    value = document.value
    if not isinstance(value, Mapping) or "knowledge" not in value:
        raise document.source.error((), "is not a file of knowledge", "'autoopt knowledge export' writes one")
    version = value["knowledge"]
    if isinstance(version, int) and version > FORMAT:
        raise document.source.error(("knowledge",), f"has version {version}; this autoopt reads {FORMAT}", "upgrade it")
    try:
        knowledge = Knowledge.model_validate(value)
    except ValidationError as error:
        first = problems_of(error)[0]
        raise document.source.error(first.place, first.reason, first.remedy) from None
    content = {name: item for name, item in value.items() if name != "digest"}
    if knowledge.digest != digest_json(content):
        raise document.source.error(("digest",), "does not fit: the file was edited", "export it again")
    return knowledge
