#!/usr/bin/env python3
"""Runs models that weft exported in onnxruntime: check_onnx.py FOLDER...

Each folder has model.onnx, which has one input and one output, and pairs input_N.npy and
output_N.npy, what weft computes. onnx.checker checks the model in full first. Prints one line of
JSON for each folder: the `opset`, the `largest` magnitude of an output, and the largest
`difference` from what weft computes.
"""
import json
import pathlib
import sys

import numpy
import onnx
import onnxruntime


def check(folder):
    path = str(folder / "model.onnx")
    onnx.checker.check_model(path, full_check=True)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    worst = largest = 0.0
    for given in sorted(folder.glob("input_*.npy")):
        expected = numpy.load(given.with_name(given.name.replace("input", "output")))
        got, = session.run(None, {session.get_inputs()[0].name: numpy.load(given)})
        if got.shape != expected.shape:
            raise SystemExit(f"{folder}: got {got.shape}, expected {expected.shape}")
        worst = max(worst, float(numpy.abs(got - expected).max()))
        largest = max(largest, float(numpy.abs(expected).max()))
    opset = onnx.load(path, load_external_data=False).opset_import[0].version
    return {"model": folder.name, "opset": opset, "largest": largest, "difference": worst}


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for folder in sys.argv[1:]:
        print(json.dumps(check(pathlib.Path(folder))))


if __name__ == "__main__":
    main()
