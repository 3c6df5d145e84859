"""Session options: everything unknown is refused."""

import pytest

from autoopt.errors import InputError
from autoopt.model.session_options import check_session_options, plain_options


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"exec_mode": "parallel"}, "did you mean 'execution_mode'"),
        ({"execution_mode": "paralel"}, "did you mean 'parallel'"),
        ({"graph_optimization_level": "most"}, "known: all, basic"),
        ({"intra_op_num_threads": "2"}, "must be int"),
        ({"intra_op_num_threads": True}, "must be int"),
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
        check_session_options(options)


def test_plain_options_leave_out_the_defaults_of_the_runtime() -> None:
    options = {
        "graph_optimization_level": "all",
        "config": {"session.intra_op.allow_spinning": "1"},
        "io_binding": True,
    }
    assert plain_options(options) == {"io_binding": True}
