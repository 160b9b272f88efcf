#!/usr/bin/env python3
"""Climbs a ladder of small steps on a GPU, each rung a process of its own, several at once.

    tools/gpu_smoke.py --rung build/release/bench/gpu_rung [--device cuda] [--small] [RUNG ...]

A rung says as JSON how long its kernels took to build, which they are, what was selected, the
workspace, and how far its results are from the CPU's. A rung that fails runs again with the logs of
NVIDIA's libraries, and under compute-sanitizer where that is installed. Exit code 1 where a rung
failed; one that the end of the budget cut off or left out says so, and is no failure.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

SECONDS = 15  # per rung
# cuBLASLt and cuDNN log their calls and results to standard output.
TALKATIVE = {"WEFT_DEBUG": "4", "WEFT_CUDA_SYNC": "1", "CUBLASLT_LOG_LEVEL": "5",
             "CUDNN_LOGLEVEL_DBG": "3", "CUDNN_LOGDEST_DBG": "stdout"}
FAILED, OUT_OF_TIME = "failed", "out of time"


def run(command, seconds, environment):
    """Returns (exit code, standard output and error)."""
    done = subprocess.run(["timeout", "-k", "2", str(max(1, int(seconds))), *map(str, command)],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", env=os.environ | environment)
    return done.returncode, done.stdout


def facts_of(code, output, name, late=FAILED):
    """Returns the rung's JSON line with its warnings and notes; `late`: its state if cut off."""
    lines = output.splitlines()
    said = next((line for line in reversed(lines) if line.startswith('{"')), None)
    facts = json.loads(said) if said else {"rung": name, "state": FAILED}
    if code in (124, 137):
        facts |= {"state": late, "error": f"it did not end within its time (exit {code})"}
    elif code != 0:
        facts.setdefault("error", f"exit {code}: {lines[-1] if lines else 'it printed nothing'}")
        facts["state"] = FAILED
    facts["exit"] = code
    facts["notes"] = [line for line in lines if line != said][-20:]
    return facts


class Ladder:
    def __init__(self, args):
        self.args = args
        self.end = time.monotonic() + args.budget
        cores = len(os.sched_getaffinity(0))
        self.jobs = args.jobs or max(1, cores // 2)
        self.threads = {"WEFT_THREADS": str(max(1, cores // self.jobs))}

    def command(self, name):
        return [self.args.rung, name, "--device", self.args.device,
                *(["--small"] if self.args.small else [])]

    def climb(self, name):
        began = time.monotonic()
        seconds = min(self.args.seconds, self.end - began)
        if seconds < 2:
            return {"rung": name, "state": OUT_OF_TIME, "error": "it was not reached"}
        code, output = run(self.command(name), seconds, self.threads)
        facts = facts_of(code, output, name,
                         OUT_OF_TIME if seconds < self.args.seconds else FAILED)
        if facts["state"] == FAILED:
            self.explain(name)
        return facts | {"seconds": round(time.monotonic() - began, 1)}

    def explain(self, name):
        """Reruns it with all logging enabled; the logs are kept next to the JSON."""
        ways = {"libraries": []}
        if sanitizer := shutil.which("compute-sanitizer"):
            ways["sanitizer"] = [sanitizer, "--print-limit", "20"]
        for way, before in ways.items():
            seconds = min(2 * self.args.seconds, self.end - time.monotonic())
            if seconds < 2:
                return
            code, output = run([*before, *self.command(name)], seconds,
                               self.threads | (TALKATIVE if way == "libraries" else {}))
            log = self.args.out / f"smoke-{name}-{way}.log"
            log.write_text(output[-2_000_000:] + f"\nexit {code}\n")

    def run(self):
        names = self.args.names or run([self.args.rung, "--list"], 10, {})[1].split()
        rungs = []
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            for facts in pool.map(self.climb, names):
                print(f"{facts['state']:12} {facts.get('seconds', 0):5.1f} s  {facts['rung']:20} "
                      + self.in_words(facts), flush=True)
                rungs.append(facts)
                (self.args.out / "smoke.json").write_text(json.dumps(rungs, indent=1) + "\n")
        return rungs

    @staticmethod
    def in_words(facts):
        if "error" in facts:
            return facts["error"][:300]
        kernels = ", ".join(kernel["kernel"] for kernel in facts.get("kernels", []))
        return f"built in {facts.get('build_ms', 0):.0f} ms: {kernels}"[:150]


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="RUNG")
    parser.add_argument("--rung", type=lambda s: pathlib.Path(s).resolve(), required=True,
                        help="the program bench/gpu_rung")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true", help="small sizes, for a CPU")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of one rung")
    parser.add_argument("--budget", type=float, default=90, help="seconds of all rungs")
    parser.add_argument("--jobs", type=int, help="rungs at once (half of the cores)")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("."),
                        help="folder of smoke.json and of the logs of rungs that failed")
    args = parser.parse_args()
    if not args.rung.is_file():
        parser.error(f"--rung {args.rung} is not a file")
    return args


def main():
    args = parse()
    args.out.mkdir(parents=True, exist_ok=True)
    rungs = Ladder(args).run()
    states = [facts["state"] for facts in rungs]
    late = states.count(OUT_OF_TIME)
    print(f"smoke: {states.count('passed')} of {len(states)} rungs passed, "
          f"{states.count(FAILED)} failed" + (f", {late} {OUT_OF_TIME}" if late else ""))
    sys.exit(1 if FAILED in states else 0)


if __name__ == "__main__":
    main()
