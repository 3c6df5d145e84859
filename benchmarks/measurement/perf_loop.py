"""A plain loop over one session, as onnxruntime's own perf test runs it; nothing of autoopt's measuring is used.

    python benchmarks/measurement/perf_loop.py MODEL DATA.npz [--options JSON] [--threads 1] [--item 0] [--seconds 1]

One warm-up inference, then inferences back to back of one item until the time is up. Prints one JSON document: the
median in ms, the number of inferences, and the configuration the session says it has. `--check` gives only the latter.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any

import numpy as np
import onnxruntime as ort

LEVELS = {"disable": 0, "basic": 1, "extended": 2, "layout": 3, "all": 99}
TYPES = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16}
TYPES |= {f"tensor({kind})": np.dtype(kind).type for kind in ("int64", "int32", "int16", "int8", "uint8", "bool")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("data")
    parser.add_argument("--options", default="{}")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--item", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    session = make(args.model, json.loads(args.options), args.threads)
    feed = item(session, args.data, args.item)
    result: dict[str, Any] = {"configuration": configuration(session), "shapes": {n: a.shape for n, a in feed.items()}}
    if not args.check:
        result |= loop(session, feed, args.seconds)
    print(json.dumps(result))


def make(model: str, options: dict[str, Any], threads: int) -> ort.InferenceSession:
    """A session on the CPU with those options."""
    disabled = options.get("disabled_optimizers", [])
    made = session_options(options, threads)
    return ort.InferenceSession(model, made, providers=["CPUExecutionProvider"], disabled_optimizers=disabled)


def session_options(options: dict[str, Any], threads: int) -> ort.SessionOptions:
    """The runtime's form of those options."""
    made = ort.SessionOptions()
    made.log_severity_level = 4
    made.intra_op_num_threads = options.get("intra_op_num_threads", threads)
    made.inter_op_num_threads = options.get("inter_op_num_threads", 1)
    made.graph_optimization_level = ort.GraphOptimizationLevel(LEVELS[options.get("graph_optimization_level", "all")])
    if options.get("execution_mode") == "parallel":
        made.execution_mode = ort.ExecutionMode.ORT_PARALLEL
    made.enable_mem_pattern = options.get("enable_mem_pattern", True)
    made.enable_cpu_mem_arena = options.get("enable_cpu_mem_arena", True)
    # Threads of idle sessions would occupy the cores for longer than a turn of the others takes.
    made.add_session_config_entry("session.intra_op.spin_duration_us", "1000")
    for key, value in options.get("config", {}).items():
        made.add_session_config_entry(key, value)
    return made


def item(session: ort.InferenceSession, data: str, number: int) -> dict[str, Any]:
    """One item of the file, as the session's inputs want it."""
    feed = {}
    with np.load(data, allow_pickle=False) as arrays:
        for wanted in session.get_inputs():
            array = arrays[wanted.name]
            start = number % len(array) if array.ndim else 0
            value = array[start : start + 1] if array.ndim else array
            if wanted.shape is not None and value.ndim == len(wanted.shape) + 1:
                value = value[0]
            feed[wanted.name] = value.astype(TYPES.get(wanted.type, value.dtype))
    return feed


def loop(session: ort.InferenceSession, feed: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Median of inferences back to back."""
    session.run(None, feed)
    times: list[int] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(times) < 5:
        began = time.perf_counter_ns()
        session.run(None, feed)
        times.append(time.perf_counter_ns() - began)
    return {"ms": statistics.median(times) / 1e6, "inferences": len(times)}


def configuration(session: ort.InferenceSession) -> dict[str, Any]:
    """Description of a session; the same for two sessions that run alike."""
    options = session.get_session_options()
    return {
        "providers": session.get_providers(),
        "intra_op_num_threads": options.intra_op_num_threads,
        "inter_op_num_threads": options.inter_op_num_threads,
        "graph_optimization_level": int(options.graph_optimization_level),
        "execution_mode": int(options.execution_mode),
        "enable_mem_pattern": options.enable_mem_pattern,
        "enable_cpu_mem_arena": options.enable_cpu_mem_arena,
        "inputs": [[i.name, i.type] for i in session.get_inputs()],
    }


if __name__ == "__main__":
    main()
