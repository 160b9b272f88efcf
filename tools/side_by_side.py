#!/usr/bin/env python3
"""How long two runs take on the same two cores, beside one that has them to itself.

    tools/side_by_side.py BUILD [NAME ...]    make bench-shared

Each of `weft bench` and of a program that links the library without weft::main runs alone, then
twice at once, then alone again, as a shared machine's speed drifts. What is shown are median
milliseconds of a step, and the mean of both together over the mean of both alone. Two runs that
took turns would take 2.0 times as long; the goal is 2.3 at most.
"""
import json
import os
import pathlib
import re
import subprocess
import sys

GOAL = 2.3
WORKLOADS = {"mlp": 8000, "gpt-char": 300, "resnet20": 40}  # steps: about ten seconds
LINKED = "linked_program"


def command(build, name):
    if name == LINKED:
        return [build / "bench" / LINKED, str(WORKLOADS["mlp"])]
    return [build / "weft", "bench", name, "--steps", str(WORKLOADS[name]), "--json"]


def milliseconds(name, process):
    said = process.communicate()[0]
    if process.returncode != 0:
        sys.exit(f"{name} failed with exit code {process.returncode}")
    if name == LINKED:
        return float(re.match(r"[\d.]+", said)[0])
    return json.loads(said)["median_ms"]


def run(build, name, count):
    started = [subprocess.Popen(command(build, name), stdout=subprocess.PIPE, text=True)
               for _ in range(count)]
    return [milliseconds(name, process) for process in started]


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    build, names = pathlib.Path(sys.argv[1]), sys.argv[2:] or [*WORKLOADS, LINKED]
    unknown = [name for name in names if name not in (*WORKLOADS, LINKED)]
    if unknown:
        sys.exit(f"{unknown[0]} is none of {', '.join([*WORKLOADS, LINKED])}")
    cores = sorted(os.sched_getaffinity(0))[:2]
    os.sched_setaffinity(0, cores)  # inherited by its processes
    print(f"cores {cores}, load {os.getloadavg()[0]:.1f}; median ms of a step\n\n"
          f"| workload | alone, before and after | together | times as long (goal {GOAL}) |\n"
          "|---|---|---|---|")
    missed = []
    for name in names:
        before, together, after = (run(build, name, count) for count in (1, 2, 1))
        alone = before + after
        ratio = max(together) / (sum(alone) / len(alone))  # of the slower one
        shown = [" and ".join(f"{ms:.3g}" for ms in times) for times in (alone, together)]
        print(f"| {name} | {shown[0]} | {shown[1]} | {ratio:.2f} |", flush=True)
        missed += [name] if ratio > GOAL else []
    if missed:
        sys.exit(f"\nabove the goal of {GOAL}: {', '.join(missed)}")


if __name__ == "__main__":
    main()
