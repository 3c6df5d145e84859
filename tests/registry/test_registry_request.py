"""The request and the reply of the worker function that describes passes."""

from __future__ import annotations

import json

import pytest

from autoopt.json_codec import JsonTypeError, from_json, to_json
from autoopt.metrics import METRICS
from autoopt.registry import DescribeReply, DescribeRequest, Failure, PassInfo
from autoopt.target import Accelerator

MINE = PassInfo("mine", "user", "s", origin="/x/passes.py", source_digest="d")


def test_a_request_survives_its_json() -> None:
    request = DescribeRequest("/x/passes.py", Accelerator("gpu", "CUDAExecutionProvider"))
    assert from_json(DescribeRequest, json.loads(json.dumps(to_json(request)))) == request


def test_a_reply_survives_its_json() -> None:
    metrics = (next(iter(METRICS.values())),)
    reply = DescribeReply((MINE,), metrics, "digest", (Failure("plug-in broken", "ImportError"),))
    assert DescribeReply.from_json(json.loads(json.dumps(reply.to_json()))) == reply


def test_a_reply_tells_passes_that_are_not_built_in() -> None:
    built_in = PassInfo("simplify", "cleanup", "s")
    assert DescribeReply((built_in, MINE)).added_passes() == {"mine": MINE}


def test_a_reply_of_the_wrong_form_is_refused() -> None:
    with pytest.raises(JsonTypeError, match="source_digest"):
        DescribeReply.from_json({"passes": [], "source_digest": 1})
