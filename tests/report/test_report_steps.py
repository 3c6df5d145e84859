"""Chains in short words."""

from __future__ import annotations

from autoopt.report.words.steps import steps_text, tail


def test_settings_that_are_on_stand_behind_their_pass() -> None:
    point = {
        "static": {"per_channel": True, "calibrate_method": "Percentile", "op_types": ["Conv", "Gemm"], "samples": 8},
        "session": {"graph_optimization_level": "all", "intra_op_num_threads": 1},
    }
    assert steps_text("fold -> static -> session", point) == (
        "fold -> static(Percentile, Conv+Gemm, per_channel, samples=8) -> session(all, 1 thread)"
    )


def test_settings_that_are_off_or_left_to_the_runtime_are_not_shown() -> None:
    point = {"static": {"per_channel": False, "op_types": [], "equalize": "none"}, "session": {"threads": None}}
    assert steps_text("static -> session", point) == "static -> session"


def test_a_long_text_loses_its_first_passes_then_the_settings() -> None:
    point = {"static": {"per_channel": True}, "session": {"threads": 1}}
    chain = "names -> fold -> static -> session"
    assert steps_text(chain, point, 52) == "… fold -> static(per_channel) -> session(threads=1)"
    assert steps_text(chain, point, 45) == "… static(per_channel) -> session(threads=1)"
    assert steps_text(chain, point, 33) == "… static -> session(threads=1)"
    assert steps_text(chain, point, 25) == "… static -> session"
    assert steps_text(chain, point, 14) == "… session"
    assert steps_text("static", point, 19) == "static(per_channel)"
    assert steps_text("static", point, 12) == "static"


def test_of_a_long_chain_the_end_is_shown() -> None:
    assert tail("a -> b -> c", 20) == "a -> b -> c"
    assert tail("simplify -> fold -> static", 12) == "…d -> static"
