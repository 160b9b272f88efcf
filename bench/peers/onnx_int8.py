#!/usr/bin/env python3
"""Quantizes files of onnx_models.py to int8 by onnxruntime, for onnx_latency.py.

    bench/peers/onnx_int8.py FOLDER OUT [NAME ...]      resnet50 bert

Writes NAME_static.onnx (QDQ: u8 activations, i8 weights per channel, calibrated on random inputs)
and, of nets without convolutions, NAME_dynamic.onnx. Needs onnx, onnxruntime and sympy.
"""

import argparse
import pathlib
import tempfile

import onnxruntime as ort
from onnxruntime.quantization import (CalibrationDataReader, QuantFormat, QuantType,
                                      quantize_dynamic, quantize_static)
from onnxruntime.quantization.shape_inference import quant_pre_process

from onnx_latency import inputs_of

BATCHES = 4


class RandomInputs(CalibrationDataReader):
    def __init__(self, model):
        session = ort.InferenceSession(str(model), providers=["CPUExecutionProvider"])
        self.batches = iter([inputs_of(session, 1)] * BATCHES)

    def get_next(self):
        return next(self.batches, None)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("names", nargs="*", default=["resnet50", "bert"])
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.names:
            model, prepared = arguments.folder / f"{name}.onnx", f"{folder}/{name}.onnx"
            quant_pre_process(str(model), prepared)
            quantize_static(prepared, str(arguments.out / f"{name}_static.onnx"),
                            RandomInputs(model), quant_format=QuantFormat.QDQ, per_channel=True,
                            activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8)
            if name != "resnet50":
                quantize_dynamic(prepared, str(arguments.out / f"{name}_dynamic.onnx"),
                                 per_channel=True)


if __name__ == "__main__":
    main()
