"""Functions for workers to run in tests: well-behaved ones and every kind of trouble."""

from __future__ import annotations

import ctypes
import logging
import mmap
import os
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from autoopt.errors import InputError
from autoopt.outcome import Outcome

Json = dict[str, Any]


class Unwilling(Exception):
    outcome = Outcome.REFUSED


def echo(payload: Json) -> Json:
    return payload


def who(payload: Json) -> Json:
    return {"pid": os.getpid(), "group": os.getpgid(0), "python": sys.executable, "seed": os.environ["PYTHONHASHSEED"]}


def fork_and_return(payload: Json) -> Json:
    return {**payload, "in_fork": os.fork() == 0}


def environment(payload: Json) -> Json:
    return dict(os.environ)


def log(payload: Json) -> Json:
    logging.getLogger("autoopt.jobs").info(payload["text"])
    return {"pid": os.getpid()}


def imported(payload: Json) -> Json:
    return {"modules": [m for m in payload["modules"] if m in sys.modules]}


def noise(payload: Json) -> Json:
    print("printed")
    os.write(1, b"written to 1\n")
    ctypes.CDLL(None).puts(b"from C")
    ctypes.CDLL(None).fflush(None)
    subprocess.run(["echo", "from a program"], check=True)
    return {"stdin": os.read(0, 1).decode()}


def write_everywhere(payload: Json) -> Json:
    for fd in range(3, 64):
        with suppress(OSError):
            os.write(fd, payload["text"].encode())
    return {}


def fail(payload: Json) -> Json:
    raise ValueError(payload["text"])


def unwilling(payload: Json) -> Json:
    raise Unwilling("not this model")


def wrong_input(payload: Json) -> Json:
    raise InputError("too big", where="model.onnx", remedy="make it smaller")


def leave(payload: Json) -> Json:
    sys.exit(3)


def not_json(payload: Json) -> Json:
    return {"value": object()}


def signalled(payload: Json) -> Json:
    os.write(2, b"last words\n")
    os.kill(os.getpid(), getattr(signal, payload["signal"]))
    threading.Event().wait()
    return {}


def die(payload: Json) -> Json:
    os.abort()


def killed_once(payload: Json) -> Json:
    """Killed from outside the first time, as the kernel does to free memory."""
    mark = Path(payload["mark"])
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return {"read": True}


def die_full(payload: Json) -> Json:
    """Dies with `mib` in memory, after the pool has read what it prints and so has seen that."""
    held = b"x" * (payload["mib"] << 20)
    for _ in range(1000):
        os.write(2, b"." * 1024)
    os.kill(os.getpid(), signal.SIGSEGV)
    return {"mib": len(held) >> 20}


def litter(payload: Json) -> Json:
    """Leaves a temporary file behind, and its name in the file `place`."""
    file, name = tempfile.mkstemp()
    os.close(file)
    with open(payload["place"], "w", encoding="utf-8") as place:
        place.write(name)
    if payload["end"] == "dies":
        os.abort()
    threading.Event().wait()
    return {}


def exit_now(payload: Json) -> Json:
    os._exit(payload["code"])


def _tell(payload: Json, *pids: int) -> None:
    if "tell" in payload:
        with open(payload["tell"], "w", encoding="ascii") as pipe:
            pipe.write(" ".join(map(str, pids)) + "\n")


def hang(payload: Json) -> Json:
    """Never returns: in native code that holds the interpreter's lock, with SIGTERM blocked."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    _tell(payload, os.getpid())
    ctypes.PyDLL(None).pause()
    return {}


def hang_with_family(payload: Json) -> Json:
    """Hangs, and so do a child in the same group and one in a session of its own that was orphaned."""
    program = "import os, sys, time; print(os.getpid(), flush=True); time.sleep(3600)"
    near = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    orphan = (
        "import subprocess, sys; "
        f"p = subprocess.Popen([sys.executable, '-c', {program!r}], start_new_session=True, stdout=1); p.returncode = 0"
    )
    far = subprocess.Popen([sys.executable, "-c", orphan], stdout=subprocess.PIPE, text=True)
    assert near.stdout
    assert far.stdout
    pids = [int(near.stdout.readline()), int(far.stdout.readline())]
    far.wait()
    if payload.get("die"):
        _tell(payload, os.getpid(), *pids)
        os.abort()
    _tell(payload, os.getpid(), *pids)
    ctypes.PyDLL(None).pause()
    return {}


def leave_child(payload: Json) -> Json:
    """Leaves a child of a shell that has ended, and tells if it lives once somebody opens the named pipe `gate`."""
    child = int(subprocess.check_output(["sh", "-c", "sleep 3600 > /dev/null & echo $!"]))
    _tell(payload, child)
    wait_for_file(payload)
    return {"lives": Path(f"/proc/{child}").exists()}


def wait_for_file(payload: Json) -> Json:
    """Returns once somebody has opened the other end of the named pipe `gate`."""
    with open(payload["gate"], encoding="ascii") as pipe:
        return {"read": pipe.read()}


def allocate(payload: Json) -> Json:
    blocks = [b"x" * (1 << 20) for _ in range(payload["mib"])]
    return {"mib": len(blocks)}


def hoard(payload: Json) -> Json:
    """Fills memory piece by piece until there is none; the most that was ever resident in this process, in bytes."""
    held: list[bytes] = []
    with suppress(MemoryError):
        while True:
            held.append(b"x" * payload["piece"])
    held.clear()
    with open("/proc/self/status", encoding="ascii") as status:
        return {"bytes": 1024 * next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))}


def allocate_shared(payload: Json) -> Json:
    """Memory that the kernel does not count as data."""
    shared = mmap.mmap(-1, payload["mib"] << 20)
    for at in range(0, payload["mib"] << 20, 4096):
        shared[at] = 1
    threading.Event().wait()
    return {}


def allocate_in_native_code(payload: Json) -> Json:
    """A failed allocation that ends the process, as C++ does it."""
    os.write(2, b"terminate called after throwing an instance of 'std::bad_alloc'\n")
    os.abort()


def reserve(payload: Json) -> Json:
    """Address space that is never used, as runtimes reserve it."""
    held = mmap.mmap(-1, payload["mib"] << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ)
    return {"size": len(held)}


def recurse(payload: Json) -> Json:
    return recurse(payload)


def run_model(payload: Json) -> Json:
    """One inference of the model at `path`, all inputs ones."""
    import numpy as np
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(payload["path"], options, providers=["CPUExecutionProvider"])
    kinds = {"tensor(float)": "float32", "tensor(int64)": "int64", "tensor(bool)": "bool"}
    feeds = {
        i.name: np.ones([d if isinstance(d, int) else 1 for d in i.shape], kinds.get(i.type, "float32"))
        for i in session.get_inputs()
    }
    outputs = session.run(None, feeds)
    return {"outputs": len(outputs)}


def infer_shapes(payload: Json) -> Json:
    import onnx

    made = onnx.shape_inference.infer_shapes(onnx.load(payload["path"]), data_prop=payload.get("data_prop", False))
    return {"bytes": made.ByteSize()}


def full_check(payload: Json) -> Json:
    import onnx

    onnx.checker.check_model(payload["path"], full_check=True)
    return {}


def read_every_way(payload: Json) -> Json:
    """Everything that a run does to a model that it reads, one after the other; tells how far it came."""
    import onnx

    from autoopt.model import worker

    path = worker.admit({"source": payload["path"], "dest": payload["dest"]})
    copy = payload["dest"] + "/model.onnx"
    worker.inspect({"path": copy})
    came: Json = {"digest": path["digest"], "problems": []}
    for step in (full_check, infer_shapes, run_model):
        try:
            step({"path": copy})
        except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError, RuntimeError, ValueError) as error:
            came["problems"].append(f"{step.__name__}: {type(error).__name__}")
        except Exception as error:
            if not type(error).__module__.startswith("onnxruntime"):
                raise
            came["problems"].append(f"{step.__name__}: {type(error).__name__}")
    return came
