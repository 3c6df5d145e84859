"""Session options: everything unknown is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoopt.errors import InputError
from autoopt.model.session import make_session
from autoopt.model.session_options import (
    CONFIG_DEFAULTS,
    CONFIG_VALUES,
    EXECUTION_MODES,
    OPTIMIZATION_LEVELS,
    OPTIMIZERS,
    PRECISION_OPTIONS,
    PROVIDER_OPTIONS,
    RUNTIME_DEFAULTS,
    SEARCHED_OPTIONS,
    THREADS_OPTION,
    plain_options,
    session_config,
    with_provider_options,
)
from autoopt.target import EXECUTION_PROVIDERS

CPU = "CPUExecutionProvider"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"exec_mode": "parallel"}, "did you mean 'execution_mode'"),
        ({"execution_mode": "paralel"}, "did you mean 'parallel'"),
        ({"graph_optimization_level": "most"}, "known: all, basic"),
        ({"intra_op_num_threads": "2"}, "expected int"),
        ({"intra_op_num_threads": True}, "expected int"),
        ({"inter_op_num_threads": -1}, "at least 0"),
        ({"config": {"session.intra_op.allow_spining": "0"}}, "did you mean 'session.intra_op.allow_spinning'"),
        ({"config": {"session.intra_op.allow_spinning": "yes"}}, "'0', '1'"),
        ({"config": {"session.dynamic_block_base": "-4"}}, "whole number"),
        ({"config": {"session.disable_quant_qdq": "1"}}, "unknown session config entry"),
        ({"disabled_optimizers": ["ConvBNFussion"]}, "did you mean 'ConvBNFusion'"),
        ({"provider_options": {"use_tf32": "1"}}, "unknown option of CPUExecutionProvider"),
    ],
)
def test_what_the_runtime_would_silently_accept_is_refused(options: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        session_config(options, CPU)


NAMED_OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "execution_mode": st.sampled_from(sorted(EXECUTION_MODES)),
        "graph_optimization_level": st.sampled_from(sorted(OPTIMIZATION_LEVELS)),
        "inter_op_num_threads": st.integers(0, 8),
        "intra_op_num_threads": st.integers(0, 8),
        "enable_mem_pattern": st.booleans(),
        "enable_cpu_mem_arena": st.booleans(),
        "config": st.dictionaries(
            st.sampled_from([name for name, values in CONFIG_VALUES.items() if values]), st.sampled_from(["0", "1"])
        ),
        "disabled_optimizers": st.lists(st.sampled_from(sorted(OPTIMIZERS)), unique=True),
        "io_binding": st.booleans(),
    },
)
"""Every option that the runtime has on a CPU, with values that it accepts."""


@given(NAMED_OPTIONS)
def test_known_options_pass_as_they_are_and_have_a_typed_form(options: dict[str, Any]) -> None:
    config = session_config(options, CPU)
    for name, value in options.items():
        assert getattr(config, name) == value


@given(NAMED_OPTIONS)
def test_plain_options_are_stable_and_sorted_and_still_accepted(options: dict[str, Any]) -> None:
    plain = plain_options(options)
    assert plain_options(plain) == plain
    assert list(plain) == sorted(plain)
    session_config(plain, CPU)


@given(NAMED_OPTIONS)
def test_defaults_that_are_written_out_make_no_other_session(options: dict[str, Any]) -> None:
    explicit = {**RUNTIME_DEFAULTS, **options, "config": {**CONFIG_DEFAULTS, **options.get("config", {})}}
    assert plain_options(explicit) == plain_options(options)


def test_each_session_of_a_runtime_has_its_optimizers_and_entries_accepted(model_path: Path) -> None:
    options = {"disabled_optimizers": sorted(OPTIMIZERS), "config": dict(CONFIG_DEFAULTS)}
    outputs = make_session(model_path, options).run(None, {"x": np.ones((2, 3), np.float32)})
    assert len(outputs) == 1


@pytest.mark.parametrize("threads", [1.0, "1", [1]])
def test_a_number_of_threads_is_a_whole_number(threads: object) -> None:
    with pytest.raises(InputError, match="session option intra_op_num_threads: expected int"):
        session_config({"intra_op_num_threads": threads}, CPU)


def test_the_options_of_a_provider_are_known_for_this_provider_only() -> None:
    options = {"provider_options": {"use_tf32": "0"}}
    assert session_config(options, "CUDAExecutionProvider").provider_options == {"use_tf32": "0"}
    with pytest.raises(InputError, match="unknown option of TensorrtExecutionProvider 'use_tf32'"):
        session_config(options, "TensorrtExecutionProvider")


def test_what_is_searched_of_a_provider_is_known() -> None:
    assert {*PROVIDER_OPTIONS} <= {*EXECUTION_PROVIDERS}
    for provider, precisions in PRECISION_OPTIONS.items():
        for options in precisions.values():
            session_config({"provider_options": with_provider_options({}, options)}, provider)
    for provider, alternatives in SEARCHED_OPTIONS.items():
        for options in alternatives:
            session_config({"provider_options": options}, provider)
    for provider, name in THREADS_OPTION.items():
        session_config({"provider_options": {name: "2"}}, provider)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ('{"CPU": {"CACHE_DIR": "/tmp/anywhere"}}', "unknown property of OpenVINO 'CACHE_DIR'"),
        ('{"CPU": {"NUM_STREAMS": "many"}}', "must be a whole number"),
        ('{"AUTO": {"DEVICE_PROPERTIES": {"CPU": {"CACHE_DIR": "x"}}}}', "texts by device and property"),
        ("/tmp/config.json", "must be JSON"),
    ],
)
def test_a_configuration_of_openvino_writes_and_reads_no_files(config: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        session_config({"provider_options": {"load_config": config}}, "OpenVINOExecutionProvider")


def test_lists_and_entries_of_another_type_are_named() -> None:
    with pytest.raises(InputError, match=r"session option disabled_optimizers\.0: expected str"):
        session_config({"disabled_optimizers": [1]}, CPU)
    with pytest.raises(InputError, match="session option config: expected"):
        session_config({"config": ["session.disable_prepacking"]}, CPU)
