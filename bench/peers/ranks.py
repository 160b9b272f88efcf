#!/usr/bin/env python3
"""Two ranks of one thread beside one rank of two threads, and beside DDP and FSDP2 of PyTorch.

    python3 bench/peers/ranks.py --weft build/release/weft --python build/peers-venv/bin/python \\
        [--rounds 3] [--markdown FILE] [gpt2-4x64 gpt2-4x256 resnet20]

A round is each side once, in that order; a ratio is of times of one round.
Memory is what all processes of a side hold, shared pages counted once (Pss), at its most.
"""
import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from turns import KEEP_PAGES

HERE = pathlib.Path(__file__).resolve().parent
RECIPES = HERE.parents[1] / "recipes"
GPT2 = ["gpt2.yaml", "--model.config.dropout", 0]
# Recipe and flags of weft, flags of the peer, samples of all ranks. The images are looked for in
# WEFT_DATA_DIR/cifar-10-binary; tokens are generated.
CASES = {
    "gpt2-4x64": ([*GPT2, "--data.seq_len", 64], ["gpt2", "--length", 64], 4),
    "gpt2-4x256": ([*GPT2, "--data.seq_len", 256], ["gpt2", "--length", 256], 4),
    "resnet20": (["cifar10-resnet20.yaml", "--data.transforms", "[]"], ["resnet20"], 128),
}


def children(process):
    """Returns a process and all that descend from it."""
    parents = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(stat[1]), []).append(int(entry.name))
    found = [process]
    for each in found:
        found += parents.get(each, [])
    return found


def held_mib(process):
    """Returns the MiB that a process and its descendants hold, shared pages once."""
    total = 0
    for each in children(process):
        try:
            lines = pathlib.Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue  # it has ended
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


def watch(command, environment, folder, done=lambda: False):
    """Runs a command until it ends or is done; returns its output and the most MiB held."""
    print("  $", *command, file=sys.stderr, flush=True)
    with open(folder / "out", "w+") as out:
        process = subprocess.Popen(list(map(str, command)), stdout=out, stderr=subprocess.STDOUT,
                                   cwd=folder, env=os.environ | environment)
        most, looked, stopped = 0.0, time.monotonic(), False
        while process.poll() is None:
            time.sleep(0.1)
            if time.monotonic() - looked > 2:
                most, looked = max(most, held_mib(process.pid)), time.monotonic()
            if stopped := done():
                for each in children(process.pid):
                    os.kill(each, signal.SIGSTOP)  # so that none acts upon the end of another
                for each in children(process.pid):
                    os.kill(each, signal.SIGKILL)
                process.wait()
        out.seek(0)
        text = out.read()
    if process.returncode != 0 and not stopped:
        raise SystemExit(f"ranks.py: {command[0]} ended with {process.returncode}:\n{text[-2000:]}")
    return text, most


def weft(args, case, ranks, zero=1):
    """Returns milliseconds of the median update and MiB."""
    flags, _, batch = CASES[case]
    items = batch * (flags[-1] if case != "resnet20" else 1)

    def rates(folder):
        lines = [line for path in folder.rglob("log.jsonl") for line in path.open()]
        return [rate for line in lines if line.endswith("\n")
                for key, rate in json.loads(line).items() if key in ("tok/s", "img/s")]

    with tempfile.TemporaryDirectory(prefix="weft-ranks-") as folder:
        folder = pathlib.Path(folder)
        command = [args.weft, *(["launch", "-n", ranks] if ranks > 1 else []), "train",
                   RECIPES / flags[0], *flags[1:], "--train.global_batch_size", batch,
                   "--train.micro_batch_size", batch // ranks, "--train.grad_clip", 0,
                   "--eval.every", 1000, "--train.steps", 1000, "--log.every", 1,
                   "--parallel.zero", zero, "--runs", folder]
        _, most = watch(command, {} if ranks > 1 else {"WEFT_THREADS": "2"}, folder,
                        lambda: len(rates(folder)) >= args.steps + 3)
        return 1e3 * items / statistics.median(rates(folder)[3:]), most


def torch(args, case, mode):
    _, flags, batch = CASES[case]
    with tempfile.TemporaryDirectory(prefix="weft-ranks-") as folder:
        command = [args.python, "-m", "torch.distributed.run", "--nproc-per-node", 2,
                   HERE / "torch_ranks.py", *flags, "--batch", batch, "--mode", mode,
                   "--steps", args.steps]
        text, most = watch(command, {"OMP_NUM_THREADS": "1", "GLIBC_TUNABLES": KEEP_PAGES},
                           pathlib.Path(folder))
    line = next(line for line in text.splitlines() if line.startswith("{"))
    return json.loads(line)["median_ms"], most


def measure(args, case):
    """Returns the table of a case, and its pairs of one rank over two."""
    sides = {"weft, one rank, two threads": lambda: weft(args, case, 1),
             "weft, two ranks, ZeRO 1": lambda: weft(args, case, 2),
             "weft, two ranks, ZeRO 3": lambda: weft(args, case, 2, 3)}
    if args.python:
        sides["PyTorch, DDP, two ranks"] = lambda: torch(args, case, "ddp")
        if case != "resnet20":
            sides["PyTorch, FSDP2, two ranks"] = lambda: torch(args, case, "fsdp")
    rounds = [{name: side() for name, side in sides.items()} for _ in range(args.rounds)]
    names = list(sides)
    one, two = names[:2]
    lines = [f"| {case} | ms | MiB | over two ranks, ZeRO 1 |", "|---|---|---|---|"]
    for name in names:
        ms, mib = zip(*(each[name] for each in rounds))
        ratios = " ".join(f"{each[name][0] / each[two][0]:.2f}" for each in rounds)
        lines.append(f"| {name} | {statistics.median(ms):,.0f} | {max(mib):,.0f} | {ratios} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="case", help=", ".join(CASES))
    parser.add_argument("--weft", type=pathlib.Path, required=True)
    parser.add_argument("--python", help="a Python that has PyTorch; without it weft runs alone")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=7, help="timed updates of a visit")
    parser.add_argument("--markdown", type=pathlib.Path)
    args = parser.parse_args()
    for case in args.cases:
        if case not in CASES:
            parser.error(f"no case {case}: there are {', '.join(CASES)}")
    args.weft = args.weft.resolve()
    tables = []
    for case in args.cases or CASES:
        tables.append(measure(args, case))
        print(tables[-1], flush=True)
    if args.markdown:
        args.markdown.write_text("\n".join(tables))


if __name__ == "__main__":
    main()
