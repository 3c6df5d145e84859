"""The price of flow runs: the wall time of runs with Prefect over the same runs inline, for each flow run and trial.

    python -m benchmarks.scale.price [PAIRS]

It starts a stock Prefect server of its own. Each of the chains waits for half a second in each trial, so that the work
is the same everywhere; runs with many and with few trials tell the price of a trial from that of a flow run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from urllib.request import urlopen

CHAINS, MANY, FEW = 6, 4, 1
PORT = 4391
SCRIPT = '''\
import time

from autoopt import register


@register("waits")
def waits(model, number: int = 0, chain: int = 0):
    """Takes half a second."""
    time.sleep(0.5)
    model.graph.node[0].doc_string = f"{chain}, {number}"
    return model
'''


def main() -> None:
    """Measure pairs of runs and print the prices."""
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    with tempfile.TemporaryDirectory() as name, _server(Path(name)) as env:
        extra: dict[int, list[float]] = {MANY: [], FEW: []}
        for pair in range(pairs):
            for trials, found in extra.items():
                folder = Path(name) / f"{pair}-{trials}"
                inline = _seconds(folder / "inline", trials, "inline", env)
                found.append(_seconds(folder / "prefect", trials, "prefect", env) - inline)
                print(f"{trials} trials for each of {CHAINS} chains: inline {inline:.1f} s, Prefect {found[-1]:+.1f} s")
    trial = (median(extra[MANY]) - median(extra[FEW])) / (CHAINS * (MANY - FEW))
    flow_run = (median(extra[FEW]) - CHAINS * FEW * trial) / (CHAINS + 1)
    print(f"a flow run {flow_run:.2f} s, a trial {trial:.2f} s; load {os.getloadavg()[0]:.1f}")


def _seconds(folder: Path, trials: int, engine: str, env: Mapping[str, str]) -> float:
    """The wall time of a run that executes everything."""
    from onnx import TensorProto, helper, save

    folder.mkdir(parents=True)
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    graph = helper.make_graph([helper.make_node("Abs", ["x"], ["y"])], "m", [value], [
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])
    ])  # fmt: skip
    save(helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 17)]), folder / "m.onnx")
    (folder / "script.py").write_text(SCRIPT)
    numbers = list(range(trials))
    passes = [
        f"  w{n}: {{pass: waits, params: {{chain: {n}, number: {{search: {numbers}}}}}}}\n" for n in range(CHAINS)
    ]
    chains = ", ".join(f"[w{number}]" for number in range(CHAINS))
    (folder / "dag.yaml").write_text(
        f"name: price\nuser_script: script.py\npasses:\n{''.join(passes)}chains: [{chains}]\n"
        "objectives: [{metric: size}]\nconstraints: []\nsearch: {strategy: per-chain, sampler: exhaustive}\n"
    )
    command = [sys.executable, "-m", "autoopt", "run", "dag.yaml", "--model", "m.onnx", "--engine", engine, "--quiet"]
    began = time.monotonic()
    subprocess.run(command, cwd=folder, env={**env, "AUTOOPT_HOME": str(folder / "home")}, stdout=subprocess.DEVNULL)
    return time.monotonic() - began


@contextmanager
def _server(folder: Path) -> Iterator[dict[str, str]]:
    """A Prefect server; gives the environment in which it is known."""
    url = f"http://127.0.0.1:{PORT}/api"
    own = {"PREFECT_HOME": str(folder / "prefect"), "PREFECT_SERVER_ANALYTICS_ENABLED": "false", "DO_NOT_TRACK": "1"}
    env = {**os.environ, **own, "PREFECT_API_URL": url}
    command = [sys.executable, "-m", "prefect", "server", "start", "--port", str(PORT), "--no-ui"]
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(command, env=env, stdout=log, stderr=log)
        try:
            while not _answers(url):
                time.sleep(0.5)
            yield env
        finally:
            process.terminate()
            process.wait()


def _answers(url: str) -> bool:
    try:
        with urlopen(f"{url}/health", timeout=5):
            return True
    except OSError:
        return False


if __name__ == "__main__":
    main()
