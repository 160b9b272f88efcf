#!/usr/bin/env python3
"""Compares a net with int8 layers with the one in float32, in onnxruntime.

    check_int8.py NET.onnx INT8.onnx ARRAYS.npz...

The arrays have the names of the inputs. onnx.checker checks INT8.onnx in full first. Prints one line
of JSON: of each output of floats the relative error over all arrays, sqrt(sum (y - y')^2 / sum y^2).
"""
import json
import sys

import numpy
import onnx
import onnxruntime


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    net, int8, *archives = sys.argv[1:]
    onnx.checker.check_model(int8, full_check=True)
    # Quantized layers run as the file says, in float: where a processor lacks VNNI, onnxruntime's
    # products of u8 by i8 saturate sums of two.
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    sessions = [onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
                for file in (net, int8)]
    signal, noise = {}, {}
    for archive in archives:
        arrays = dict(numpy.load(archive))
        outputs = [session.run(None, arrays) for session in sessions]
        for info, wanted, got in zip(sessions[0].get_outputs(), *outputs):
            if numpy.issubdtype(wanted.dtype, numpy.floating):
                wanted, got = wanted.astype(float), got.astype(float)
                signal[info.name] = signal.get(info.name, 0) + (wanted ** 2).sum()
                noise[info.name] = noise.get(info.name, 0) + ((wanted - got) ** 2).sum()
    print(json.dumps({name: float((noise[name] / signal[name]) ** 0.5) for name in signal}))


if __name__ == "__main__":
    main()
