"""Scripts of a user that do harm: the pass that they register fails, everything else goes on."""

from __future__ import annotations

import pytest
from outside import RUN, Place, write_model

pytestmark = pytest.mark.service

DAG = """\
name: hostile
user_script: script.py
passes:
  tidy: {pass: shape_inference}
  quant:
    pass: dynamic_quantization
    params: {per_channel: {search: [true, false]}, reduce_range: {search: [true, false]}}
  own: {pass: own}
chains: [[own, tidy], [quant], [tidy]]
objectives: [{metric: size}]
constraints: [{metric: cosine, min: 0.9}]
limits: {pass_seconds: 8, memory: 1500000000}
measurement: {seconds: 0.05, replicas: 1, target_width: 2.0, rounds: 0}
"""
SCRIPT = """\
import os, signal, subprocess, sys, threading, time

from autoopt import register

def harm(model):
{body}

@register("own")
def own(model):
    return harm(model)
"""
BODIES = {
    "replaces modules": "for name in ('onnx', 'numpy', 'json', 'onnxruntime'): sys.modules[name] = None",
    "replaces functions": """\
import json, numpy, onnx
json.dumps = json.loads = numpy.asarray = onnx.load = onnx.save = lambda *a, **k: None""",
    "ends the process": "os._exit(0)",
    "raises SystemExit": "sys.exit(0)",
    "raises KeyboardInterrupt": "raise KeyboardInterrupt",
    "kills its process": "os.kill(os.getpid(), signal.SIGKILL)",
    "kills its parent": "os.kill(os.getppid(), signal.SIGKILL)",
    "ends its process group": "os.killpg(0, signal.SIGTERM)",
    "never returns": "while True: pass",
    "ignores signals and never returns": """\
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(number, signal.SIG_IGN)
while True: time.sleep(1)""",
    "recurses without end": "harm(model)",
    "takes all memory": "blocks = []\nwhile True: blocks.append(b'x' * 50_000_000)",
    "closes all files": "os.closerange(0, 1000)",
    "talks without end": "for _ in range(20_000): print('{\"outcome\": \"ok\"}' * 9); print('x' * 99, file=sys.stderr)",
    "answers for autoopt": """\
for number in range(3, 64):
    try: os.write(number, b'{"outcome": "ok"}\\n')
    except OSError: pass""",
    "leaves a process": "subprocess.Popen(['sleep', '9999'], start_new_session=True)",
    "leaves a thread": "threading.Thread(target=lambda: time.sleep(9999)).start()",
    "goes elsewhere": "os.environ.clear(); os.chdir('/'); os.umask(0o777)",
    "returns something else": "return 'not a model'",
    "spoils the model": "del model.graph.node[:]",
    "removes temporary files": "import shutil, tempfile; shutil.rmtree(tempfile.gettempdir())",
}
"""What a script does, as the body of a function."""
MARKS = {
    "never returns": pytest.mark.soak,
}


@pytest.mark.parametrize("body", [pytest.param(BODIES[name], id=name, marks=MARKS.get(name, ())) for name in BODIES])
def test_a_script_harms_only_its_own_pass(body: str, place: Place) -> None:
    place.write("script.py", SCRIPT.format(body="\n".join(f"    {line}" for line in body.splitlines())))
    place.write("dag.yaml", DAG)
    write_model(place / "model.onnx", width=512)
    said = place.call(*RUN, "--workers", "1")  # one worker would serve all passes
    document = said.document
    assert document["trials"]["total"] == 6
    assert document["trials"]["ok"] >= 5, said.err
    assert document["best"]["chain"] == "quant", said.err
    assert len(said.err) < 20_000


def test_a_script_that_does_harm_when_it_is_read_fails_only_its_own_pass(place: Place) -> None:
    """Here, every import of these modules that comes afterwards."""
    spoil = "for name in ('onnx', 'onnx_ir', 'onnxruntime', 'numpy.random'): sys.modules[name] = None\n"
    place.write("script.py", SCRIPT.format(body="    return model") + spoil)
    place.write("dag.yaml", DAG)
    write_model(place / "model.onnx", width=512)
    document = place.call(*RUN, "--workers", "1").document
    assert document["trials"]["ok"] >= 5
    assert document["best"]["chain"] == "quant"
