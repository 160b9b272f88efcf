#!/usr/bin/env python3
"""weft beside its peers, in turn, each visit in a process of its own.

    python bench/peers/run.py --weft build/weft --python peers-venv/bin/python gpt2-4x64 mlp
    python bench/peers/run.py --weft build/weft --python peers-venv/bin/python --all
    python bench/peers/run.py --weft build/weft --text tinyshakespeare.txt train-characters

A visit is weft, then a peer's setting; the next visit is weft again, then the next setting. The
ratio of a pair is the peer's time over weft's just before it, so a machine that slows down for an
hour does not move it. Later rounds have only the peers near the best of the first (--keep).
What is done stays in the JSON file: the same command, started again, goes on after it.
"""
import argparse
import datetime
import hashlib
import json
import os
import pathlib
import platform
import shlex
import subprocess
import sys
import time

import facts
from report import markdown, table
from turns import HERE, KEEP_PAGES, Runner, compare, visit_in_turn, with_time
from workloads import CASES, WORKLOADS

RECIPE = HERE.parent.parent / "recipes" / "shakespeare.yaml"
FACTS = {"start": facts.start, "dispatch": facts.dispatch}
MAKE_ENVIRONMENT = """make an environment and name its Python:
    python3 -m venv peers-venv
    peers-venv/bin/pip install torch==2.13.0 jax jaxlib optax
    make bench-peers PEERS_PYTHON=$PWD/peers-venv/bin/python"""


def versions_of(python):
    """Returns the peers that this Python can import, and their versions."""
    found = {}
    for name in ("torch", "jax", "optax"):
        code = f"import importlib.metadata as m; print(m.version('{name}'))"
        try:
            done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=60)
        except (OSError, subprocess.TimeoutExpired) as error:
            sys.exit(f"run.py: cannot start the peers' Python {python}: {error}.\n"
                     f"To {MAKE_ENVIRONMENT}")
        if done.returncode == 0:
            found[name] = done.stdout.strip()
    return found


def settings_of(case, installed, wanted):
    """Returns the peer settings that a case is compared with, as far as they are installed."""
    jax = WORKLOADS[case.workload].jax and {"jax", "optax"} <= installed.keys()
    known = [s for s in wanted or case.peers if s != "jax" or jax]
    if case.workload == "adamw":  # the fused update is one kernel already
        known = [s for s in known if not s.startswith("compile")]
    return known


def run_case(runner, name, case, installed, args):
    result = {}
    if args.weft and not args.no_limits:
        result["limits"] = facts.limits(runner, case)
    weights = runner.weights(case)
    seen = visit_in_turn(
        (lambda: with_time(runner.weft(case), "median_ms")) if args.weft else None,
        lambda setting: with_time(runner.peer(case, setting, *weights), "median_ms"),
        settings_of(case, installed, args.peers), args.visits or case.visits, args.keep)
    if args.weft and not args.no_limits:
        result["profile"] = facts.profile(runner, case)
    return compare(name, "ms", seen) | result


def run_train_characters(runner, installed, args):
    """Times 2,000 steps of nanoGPT's character setting and one validation, as one process."""
    if not args.text:
        sys.exit("run.py: train-characters needs --text FILE (the tiny Shakespeare text)")
    steps, text = args.steps or 2000, args.text.resolve()
    settings = [m for m in ("eager", "compile", "eager+malloc", "compile+malloc")
                if "torch" in installed and (not args.peers or m in args.peers)]

    def weft():
        return runner.call([args.weft, "train", args.recipe.resolve(), "--data.path", text,
                            "--steps", steps, "--eval.every", steps, "--name",
                            "train-characters", "--overwrite", "--json"])

    def peer(setting):
        mode, _, malloc = setting.partition("+")
        extra = {"TORCHINDUCTOR_CACHE_DIR": str(runner.inductor / "characters")}
        return runner.call([args.python, HERE / "torch_peer.py", "train-characters", "--text", text,
                            "--mode", mode, "--steps", steps, "--threads", args.threads],
                           extra | ({"GLIBC_TUNABLES": KEEP_PAGES} if malloc else {}))

    seen = visit_in_turn((lambda: with_time(weft(), "wall_s")) if args.weft else None,
                         lambda mode: with_time(peer(mode), "wall_s"), settings,
                         args.visits or 3, args.keep)
    return compare("train-characters", "s", seen)


def machine():
    processor = platform.processor() or platform.machine()
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            processor = line.split(":", 1)[1].strip()
            break
    return {"processor": processor, "cores": len(os.sched_getaffinity(0)),
            "system": f"{platform.system()} {platform.release()}"}


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE",
                        help=f"of {', '.join([*CASES, *FACTS, 'train-characters'])}")
    parser.add_argument("--all", action="store_true", help="every case but train-characters")
    parser.add_argument("--weft", type=pathlib.Path, help="the program; without it peers only")
    parser.add_argument("--python", default=sys.executable, help="Python that has the peers")
    parser.add_argument("--peers", type=lambda s: s.split(","),
                        help="only these settings: eager, compile, each also with -channels-last, "
                             "+malloc or both; jax")
    parser.add_argument("--visits", type=int, help="rounds of every setting (2 or 3, by case)")
    parser.add_argument("--steps", type=int, help="timed steps of a visit")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--keep", type=float, default=1.05,
                        help="later rounds have peers within this factor of the best peer (1.05)")
    parser.add_argument("--no-limits", action="store_true", help="neither floors nor profiles")
    parser.add_argument("--timeout", type=float, default=600, help="seconds of one process")
    parser.add_argument("--text", type=pathlib.Path, help="text of train-characters")
    parser.add_argument("--recipe", type=pathlib.Path, default=RECIPE)
    parser.add_argument("--inductor-cache", type=lambda s: pathlib.Path(s).resolve(),
                        help="folder where torch.compile keeps its kernels for the next run")
    parser.add_argument("--json", type=pathlib.Path, help="everything that was seen; goes on there")
    parser.add_argument("--fresh", action="store_true", help="measure again what the file has")
    parser.add_argument("--markdown", type=pathlib.Path, help="write the table")
    args = parser.parse_args()
    args.cases = [*CASES, *FACTS] if args.all else args.cases
    known = [*CASES, *FACTS, "train-characters"]
    unknown = [c for c in args.cases if c not in known]
    if unknown or not args.cases:
        parser.error(f"{f'no case named {unknown[0]}' if unknown else 'name a case, or --all'}; "
                     f"there are {', '.join(known)}")
    if args.weft:
        args.weft = args.weft.resolve()
        if not args.weft.is_file():
            parser.error(f"--weft {args.weft} is not a file; build it, or leave --weft away")
    elif any(c in FACTS for c in args.cases):
        parser.error("start and dispatch are weft's: --weft FILE")
    return args


def identity(args, installed):
    """Returns what results must have in common to share a table."""
    program = hashlib.sha256(args.weft.read_bytes()).hexdigest()[:16] if args.weft else None
    return {"weft": program, "versions": installed, "threads": args.threads, "machine": machine()}


def open_document(args, installed):
    """Returns the file's contents if they are of the same programs on the same machine."""
    who = identity(args, installed)
    if args.json and args.json.is_file() and not args.fresh:
        kept = json.loads(args.json.read_text())
        if kept.get("identity") == who:
            return kept
        print(f"run.py: {args.json} is of another weft, peer or machine: all is measured again",
              file=sys.stderr)
    return {"date": datetime.date.today().isoformat(), "identity": who,
            "command": shlex.join(["bench/peers/run.py", *sys.argv[1:]]), "seconds": 0,
            "results": {}, "facts": {}}


def measure(name, runner, installed, args, document):
    if name in FACTS:
        document["facts"][name] = FACTS[name](runner)
    elif name == "train-characters":
        document["results"][name] = run_train_characters(runner, installed, args)
    else:
        document["results"][name] = run_case(runner, name, CASES[name], installed, args)


def main():
    args = parse()
    installed = versions_of(args.python)
    if "torch" not in installed:
        sys.exit(f"run.py: PyTorch is missing in {args.python}.\nTo run the peers, "
                 f"{MAKE_ENVIRONMENT}")
    if not {"jax", "optax"} <= installed.keys():
        print("run.py: JAX or optax is missing, so its settings are left out "
              "(pip install jax jaxlib optax)", file=sys.stderr)
    if os.getloadavg()[0] > 0.5:
        print(f"run.py: the machine is busy (load {os.getloadavg()[0]:.1f}); OpenMP threads that "
              "spin suffer most, so expect wide spreads", file=sys.stderr)
    runner, document = Runner(args), open_document(args, installed)
    for name in args.cases:
        if name in document["results"] | document["facts"]:
            print(f"{name}: in {args.json} already", file=sys.stderr)
            continue
        print(f"{name}:", file=sys.stderr, flush=True)
        began = time.perf_counter()
        measure(name, runner, installed, args, document)
        document["seconds"] += round(time.perf_counter() - began)
        if name in document["results"]:
            print(table([document["results"][name]]), flush=True)
        if args.json:  # after every case, so that a long run can be stopped
            args.json.parent.mkdir(parents=True, exist_ok=True)
            args.json.write_text(json.dumps(document, indent=1) + "\n")
        if args.markdown:
            args.markdown.write_text(markdown(document))
    if args.markdown:
        args.markdown.write_text(markdown(document))
        print(f"the table is in {args.markdown}")


if __name__ == "__main__":
    main()
