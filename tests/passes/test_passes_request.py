"""The JSON of a pass request and of its reply."""

from __future__ import annotations

import json
from pathlib import Path

from autoopt.json_codec import from_json, to_json
from autoopt.model.model_file import ModelFile
from autoopt.outcome import Outcome
from autoopt.passes.request import FailedAttempt, PassReply, PassRequest, PassStep, StepReply
from autoopt.target import Accelerator

REQUEST = PassRequest(
    model=ModelFile("/models/model.onnx", {"intra_op_num_threads": 2}),
    steps=(PassStep("simplify", {"engine": "onnxsim"}, node="a"), PassStep("float16")),
    output=Path("/out"),
    accelerator=Accelerator(isa=frozenset({"avx2", "avx512_vnni"})),
    data={"path": "/data.npz", "limit": 8},
    user_script="/script.py",
    check=False,
    reports={"layer_sensitivity": {"ranking": [{"node": "n", "sqnr_db": 3.5}]}},
)
REPLY = PassReply(
    (
        StepReply(
            "simplify",
            Outcome.OK,
            params={"engine": "onnxsim"},
            node="a",
            seconds=0.5,
            path=Path("/out/0"),
            digest="abc",
            bytes=12,
            attempts=(FailedAttempt({"engine": "onnxslim"}, "too small"),),
            equivalence={"status": "same", "max_abs_error": 0.0},
        ),
        StepReply("float16", Outcome.REFUSED, message="no floats"),
    )
)


def test_a_request_survives_json() -> None:
    assert from_json(PassRequest, json.loads(json.dumps(to_json(REQUEST)))) == REQUEST


def test_a_reply_survives_json() -> None:
    assert from_json(PassReply, json.loads(json.dumps(to_json(REPLY)))) == REPLY


def test_the_pass_of_a_step_has_the_key_pass() -> None:
    steps = json.loads(json.dumps(to_json(REQUEST)))["steps"]
    assert steps[0] == {"node": "a", "pass": "simplify", "params": {"engine": "onnxsim"}}
    assert [step["pass"] for step in json.loads(json.dumps(to_json(REPLY)))["steps"]] == ["simplify", "float16"]


def test_all_but_model_steps_and_output_may_be_missing() -> None:
    request = from_json(PassRequest, {"model": {"path": "/m.onnx"}, "steps": [{"pass": "name_fix"}], "output": "/out"})
    assert request == PassRequest(ModelFile("/m.onnx"), (PassStep("name_fix"),), Path("/out"))
    assert request.check
