"""Can the measurements be believed? On real models, with real candidates, in fresh processes.

    python benchmarks/measurement/measure.py ZOO [--models a,b] [--again 10] [--results FILE] [--work FOLDER]

ZOO is a folder of folders with `model.onnx` and `evaluation.npz`. For every model:
1. candidates are made (session options, fusion, dynamic and static int8, as far as the passes take the model);
2. all are measured with the staged protocol, the best three again in rounds, as a run does it: what that gives is the
   reported interval; and all with the fixed protocol: same choice, how many repeats;
3. the chosen one is measured again in fresh processes with a long protocol: how often does its ratio lie inside the
   reported interval; and the same, report and repetition, while another process loads one core;
4. so are the top three: is their order kept, where their intervals do not overlap;
5. a copy of the source model that differs by one word of metadata is compared with it: ratio and interval;
6. a plain loop, as onnxruntime's own perf test does it (`perf_loop.py`), runs both models by themselves in processes of
   their own, in turns: is the ratio of its medians inside the reported interval.

Results of other models in FILE stay. `table.py` draws the table of README.md from it. `--prepare` only makes the
candidates into FOLDER, for a later call that finds them there: measuring wants a quiet machine, making them does not.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from autoopt.engine.run.confirm import EXTRA_ROUNDS, SECONDS_SHARE, confirmations_of
from autoopt.engine.work.evaluations import Measurements
from autoopt.measure.settings import ROUNDS
from autoopt.metrics import Estimate

METRIC = "latency_p50"
HERE = Path(__file__).parent
RECIPES: dict[str, tuple[list[tuple[str, dict[str, Any]]], dict[str, Any]]] = {
    "no optimisation": ([], {"graph_optimization_level": "disable"}),
    "basic optimisation": ([], {"graph_optimization_level": "basic"}),
    "arena off": ([], {"enable_cpu_mem_arena": False}),
    "ort graph": ([("ort_graph_optimization", {})], {}),
    "fused": ([("transformer_fusion", {})], {}),
    "dynamic int8": ([("dynamic_quantization", {})], {}),
    "static int8": ([("static_quantization", {})], {}),
    "static uint8": ([("static_quantization", {"activation_type": "QUInt8"})], {}),
}


def main() -> None:
    args = _arguments()
    if args.job:
        from autoopt.measure import worker

        print(json.dumps(worker.latency(json.loads(args.job))))
        return
    zoo = Path(args.zoo)
    names = args.models.split(",") if args.models else sorted(p.parent.name for p in zoo.glob("*/model.onnx"))
    with tempfile.TemporaryDirectory(prefix="measure-") as temporary:
        for name in names:
            work = Path(args.work or temporary) / name
            work.mkdir(parents=True, exist_ok=True)
            model = Model(zoo / name, work, args)
            candidates = model.candidates()
            if args.prepare:
                continue
            found = model.measure(candidates)
            print(_sentence(name, found), flush=True)
            if args.results:
                _merge(Path(args.results), name, found)


def _merge(file: Path, name: str, found: dict[str, Any]) -> None:
    known = json.loads(file.read_text()) if file.exists() else {}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(dict(sorted({**known, name: found}.items())), indent=1) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("zoo", nargs="?")
    parser.add_argument("--models", default="")
    parser.add_argument("--again", type=int, default=10, help="fresh processes that measure the chosen one again")
    parser.add_argument("--long", type=float, default=3.0, help="seconds of the long protocol, which uses them all")
    parser.add_argument("--seconds", type=float, default=3.0, help="seconds of the staged and the fixed protocol")
    parser.add_argument("--same", type=int, default=10, help="comparisons of the source model with its copy")
    parser.add_argument("--loops", type=int, default=5, help="processes of the plain loop, for each of two models")
    parser.add_argument("--wait", type=float, default=6.0, help="seconds to measure again while the source is slower")
    parser.add_argument("--results", default="")
    parser.add_argument("--work", default="", help="folder for candidates; made once")
    parser.add_argument("--prepare", action="store_true")
    parser.add_argument("--job", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not args.job and not args.zoo:
        parser.error("name the folder of models")
    return args


def fresh(*command: str) -> Any:
    """What a process of its own prints."""
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-1000:])
    return json.loads(done.stdout)


class Model:
    """One model of the zoo and everything measured of it."""

    def __init__(self, folder: Path, work: Path, args: argparse.Namespace) -> None:
        self.source: dict[str, Any] = {"path": str(folder / "model.onnx"), "session_options": {}}
        self.data = str(folder / "evaluation.npz")
        self.calibration = folder / "calibration.npz"
        self.work, self.args = work, args
        self.long = {"seconds": args.long, "fixed": True}
        self.wait = args.wait
        self.times: list[float] = []
        """What the source took in each measurement, ms: slow spells of the host are known by the lower quartile."""

    def latency(self, candidate: dict[str, Any], **settings: Any) -> dict[str, Any]:
        job = {"candidate": candidate, "source": self.source, "data": self.data, "metrics": [METRIC]}
        usual = sorted(self.times)[len(self.times) // 4] if self.times else None
        settings = {"source_ms": usual, "quiet_seconds": self.wait, **settings}
        answer: dict[str, Any] = fresh(__file__, "--job", json.dumps({**job, "settings": settings}))
        source = answer["source_metrics"][METRIC]["value"]
        self.times.append(source)
        return {**answer["ratios"][METRIC], "details": answer["details"], "source_ms": source}

    def measure(self, candidates: dict[str, dict[str, Any]]) -> dict[str, Any]:
        staged = self.all(candidates, fixed=False)
        first = sorted(staged, key=lambda n: staged[n]["value"])[:3]
        reported = self.confirmed({name: candidates[name] for name in first})
        top = sorted(reported, key=lambda n: reported[n]["value"])
        best = top[0]
        fixed = self.all(candidates, fixed=True)
        again = {"as it is": self.again(candidates[best], reported[best])}
        with Load():
            self.times, self.wait = [], 0.0  # there is nothing to wait for
            loaded = self.confirmed({name: candidates[name] for name in top})[best]
            again["one core loaded"] = self.again(candidates[best], loaded)
        self.wait = self.args.wait
        return {
            "candidates": {n: {"staged": _brief(staged[n]), "fixed": _brief(fixed[n])} for n in candidates},
            "reported": {n: _brief(reported[n]) for n in top},
            "reported_loaded": _brief(loaded),
            "best": best,
            "best_fixed": min(fixed, key=lambda n: fixed[n]["value"]),
            "repeats": {"staged": _repeats(staged), "fixed": _repeats(fixed)},
            "seconds": {
                k: round(sum(m["details"]["seconds"] for m in v.values()), 1)
                for k, v in (("staged", staged), ("confirmed", reported), ("fixed", fixed))
            },
            "again": again,
            "ranking": self.ranking(candidates, reported, top, statistics.median(again["as it is"]["values"])),
            "same": self.same(),
            "loop": self.loop(candidates[best], reported[best]),
        }

    def candidates(self) -> dict[str, dict[str, Any]]:
        kept = self.work / "candidates.json"
        if kept.exists():
            found: dict[str, dict[str, Any]] = json.loads(kept.read_text())
            return found
        made = self._make()
        kept.write_text(json.dumps(made))
        return made

    def _make(self) -> dict[str, dict[str, Any]]:
        from autoopt.workers import WorkerPool

        made: dict[str, dict[str, Any]] = {}
        data = str(self.calibration if self.calibration.exists() else self.data)
        with WorkerPool(size=1) as pool:
            for name, (steps, options) in RECIPES.items():
                payload = {
                    "model": self.source,
                    "steps": [{"node": p, "pass": p, "params": params} for p, params in steps],
                    "output": str(self.work / name.replace(" ", "_")),
                    "data": {"path": data, "limit": 50},
                }
                called = pool.call("autoopt.passes.runner:run", payload, timeout=300)
                done = (called.value or {"steps": [{"outcome": "failed"}]})["steps"]
                if any(step["outcome"] != "ok" for step in done):
                    continue
                path = str(next(Path(done[-1]["path"]).glob("model.o*"))) if done else self.source["path"]
                made[name] = {
                    "path": path,
                    "session_options": {**(done[-1]["session_options"] if done else {}), **options},
                }
        return made

    def all(self, candidates: dict[str, dict[str, Any]], fixed: bool) -> dict[str, dict[str, Any]]:
        """Every candidate measured, the best so far as incumbent."""
        found: dict[str, dict[str, Any]] = {}
        incumbent = 1.0
        for name, candidate in candidates.items():
            settings = {"seconds": self.args.seconds, "fixed": fixed, "incumbent_ratio": incumbent}
            found[name] = self.latency(candidate, **settings)
            incumbent = min(incumbent, found[name]["value"])
        return found

    def confirmed(self, candidates: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """The few best in rounds, in turns, and what an interval comes of it."""
        rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in candidates}
        for number in range(ROUNDS + EXTRA_ROUNDS):
            for name, candidate in candidates.items():
                if sum(not _disturbed(r) for r in rounds[name]) >= ROUNDS:
                    continue
                seconds = self.args.seconds * SECONDS_SHARE
                rounds[name].append(self.latency(candidate, seconds=seconds, quiet_seconds=self.wait, seed=number))
        return _confirmed(rounds)

    def again(self, candidate: dict[str, Any], reported: dict[str, Any]) -> dict[str, Any]:
        found = [self.latency(candidate, **self.long, seed=100 + i) for i in range(self.args.again)]
        return {
            "inside": sum(reported["low"] <= f["value"] <= reported["high"] for f in found),
            "of": len(found),
            "values": [f["value"] for f in found],
            "calm": [f["details"]["calm"] for f in found],
            "pace": [f["details"]["pace"] for f in found],
            "busy": sum(f["details"]["busy"] for f in found),
        }

    def ranking(
        self, candidates: dict[str, Any], reported: dict[str, Any], top: list[str], best: float
    ) -> dict[str, Any]:
        """The others of the top measured again too; kept where no pair with separate intervals changed places."""
        again = {top[0]: best} | {name: self.latency(candidates[name], **self.long)["value"] for name in top[1:]}
        broken = [
            (a, b)
            for i, a in enumerate(top)
            for b in top[i + 1 :]
            if reported[a]["high"] < reported[b]["low"] and again[a] > again[b]
        ]
        return {"kept": not broken, "again": again}

    def same(self) -> dict[str, Any]:
        import onnx

        proto = onnx.load(self.source["path"])
        proto.producer_version = "copy"
        onnx.save(proto, str(self.work / "copy.onnx"))
        copy = {"path": str(self.work / "copy.onnx"), "session_options": {}}
        found = [self.latency(copy, seconds=self.args.seconds, seed=i) for i in range(self.args.same)]
        return {
            "deviation": statistics.median(abs(f["value"] - 1) for f in found),
            "covered": sum(f["low"] <= 1 <= f["high"] for f in found),
            "of": len(found),
            "width": statistics.median(f["high"] - f["low"] for f in found),
        }

    def loop(self, candidate: dict[str, Any], reported: dict[str, Any]) -> dict[str, Any]:
        """Times of each process, and the median ratio of neighbouring ones, without those that ran in a slow spell."""
        ours, theirs = [], []
        for number in range(self.args.loops):
            for model, found in ((candidate, ours), (self.source, theirs)):
                options = ["--options", json.dumps(model["session_options"]), "--item", str(number)]
                command = [str(HERE / "perf_loop.py"), model["path"], self.data, *options]
                found.append(fresh(*command)["ms"])
        free = [(a, b) for a, b in zip(ours, theirs, strict=True) if a <= 1.1 * min(ours) and b <= 1.1 * min(theirs)]
        ratio = statistics.median(a / b for a, b in free or zip(ours, theirs, strict=True))
        return {"ms": [ours, theirs], "ratio": ratio, "inside": reported["low"] <= ratio <= reported["high"]}


class Load:
    """Another process that keeps one core busy, for the while."""

    def __enter__(self) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", "while True: pass"])

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()


def _confirmed(rounds: dict[str, list[dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """One result of each candidate's rounds, as a run makes it."""
    measured = {
        name: [
            Measurements(ratios={METRIC: Estimate(r["value"], r["low"], r["high"])}, disturbed=_disturbed(r))
            for r in found
        ]
        for name, found in rounds.items()
    }
    together = {name: confirmed.ratios[METRIC] for name, confirmed in confirmations_of(measured).items()}
    return {name: {**asdict(together[name]), "details": _details(found)} for name, found in rounds.items()}


def _details(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "stopped": ", ".join(sorted({r["details"]["stopped"] for r in rounds})),
        **{k: sum(r["details"][k] for r in rounds) for k in ("pairs", "set_aside", "replicas", "seconds")},
        **{k: sum(bool(r["details"][k]) for r in rounds) for k in ("busy", "disturbed")},
        "rounds": [[r["value"], _disturbed(r)] for r in rounds],
    }


def _disturbed(found: dict[str, Any]) -> bool:
    return bool(found["details"]["disturbed"] or found["details"]["busy"])


def _brief(found: dict[str, Any]) -> dict[str, Any]:
    details = found["details"]
    return {
        **{k: found[k] for k in ("value", "low", "high")},
        **{k: details[k] for k in ("stopped", "pairs", "set_aside", "replicas", "seconds", "busy", "disturbed")},
        **{k: details[k] for k in ("rounds",) if k in details},
    }


def _repeats(found: dict[str, Any]) -> int:
    return sum(f["details"]["pairs"] for f in found.values())


def _sentence(name: str, found: dict[str, Any]) -> str:
    again, same, repeats = found["again"], found["same"], found["repeats"]
    reported = found["reported"][found["best"]]
    inside = ", ".join(f"{load} {a['inside']}/{a['of']}" for load, a in again.items())
    return (
        f"{name}: best {found['best']!r} (fixed: {found['best_fixed']!r}) {reported['value']:.3f} "
        f"[{reported['low']:.3f}, {reported['high']:.3f}]; inside: {inside}; order kept: {found['ranking']['kept']}; "
        f"staged {repeats['staged']} of {repeats['fixed']} pairs of blocks; same model: off by "
        f"{100 * same['deviation']:.2f} %, covers 1 {same['covered']}/{same['of']}; "
        f"plain loop {found['loop']['ratio']:.3f} inside: {found['loop']['inside']}"
    )


if __name__ == "__main__":
    main()
