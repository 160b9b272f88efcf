#!/usr/bin/env python3
"""Compares weft's latency and outputs with onnxruntime's, on files of onnx_models.py.

    bench/peers/onnx_latency.py FOLDER [--weft PROGRAM] [--batch 1,8] [--rounds 5] [NAME ...]

Both run in turn, on two threads each; a round's figure is the median of its runs, and the table's
that of the rounds. Nothing else should run beside. Needs numpy and onnxruntime.
"""

import argparse
import json
import os
import pathlib
import subprocess
import tempfile
import time

import numpy as np
import onnxruntime as ort

THREADS = 2
RUNS = 9


def inputs_of(session, batch):
    random = np.random.default_rng(0)
    values = {}
    for each in session.get_inputs():
        shape = [extent if isinstance(extent, int) else batch for extent in each.shape]
        if each.type == "tensor(float)":
            values[each.name] = random.standard_normal(shape, dtype=np.float32)
        elif "mask" in each.name:
            values[each.name] = np.ones(shape, np.int64)
        else:
            values[each.name] = random.integers(0, 9000, shape)
    return values


def peer_round(session, inputs):
    seconds = []
    for _ in range(RUNS):
        begin = time.perf_counter()
        session.run(None, inputs)
        seconds.append(time.perf_counter() - begin)
    return 1e3 * float(np.median(seconds))


def weft_round(program, model, arrays, output):
    command = [program, "run", str(model), "--input", arrays, "--output", output, "--repeat",
               str(RUNS), "--json", "--device", "cpu"]
    environment = {**os.environ, "WEFT_THREADS": str(THREADS)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return json.loads(done.stdout)["median_ms"]


def compare(program, model, batch, rounds):
    options = ort.SessionOptions()
    options.intra_op_num_threads = THREADS
    session = ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    inputs = inputs_of(session, batch)
    expected = session.run(None, inputs)
    with tempfile.TemporaryDirectory() as folder:
        arrays, output = f"{folder}/in.npz", f"{folder}/out.npz"
        np.savez(arrays, **inputs)
        times = [(peer_round(session, inputs), weft_round(program, model, arrays, output))
                 for _ in range(rounds)]
        got = np.load(output)
        difference = max(float(np.abs(got[each.name] - value).max())
                         for each, value in zip(session.get_outputs(), expected))
    peer, own = np.median(times, axis=0)
    print(f"| {model.stem} | {batch} | {peer:.2f} | {own:.2f} | {peer / own:.2f} | {difference:.1e} |",
          flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--weft", default="build/release/weft")
    parser.add_argument("--batch", default="1,8")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_intermixed_args()
    print("| net | batch | onnxruntime, ms | weft, ms | ratio | largest difference |")
    print("|---|---|---|---|---|---|")
    names = arguments.names or sorted(path.stem for path in arguments.folder.glob("*.onnx"))
    for name in names:
        for batch in map(int, arguments.batch.split(",")):
            compare(arguments.weft, arguments.folder / f"{name}.onnx", batch, arguments.rounds)


if __name__ == "__main__":
    main()
