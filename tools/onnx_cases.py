#!/usr/bin/env python3
"""Writes the cases of the onnx package's backend node suite to a folder, for the tests.

    tools/onnx_cases.py FOLDER     needs the onnx package (tools/setup.sh --onnx)

Each case is a folder with model.onnx, input_N.pb, output_N.pb and its tolerance. Cases that weft
does not claim are left out; FOLDER/left_out lists each with its reason.
"""

import pathlib
import sys
import warnings

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

warnings.filterwarnings("ignore")

TYPES = {
    TensorProto.FLOAT, TensorProto.UINT8, TensorProto.INT8, TensorProto.INT16, TensorProto.INT32,
    TensorProto.INT64, TensorProto.BOOL, TensorProto.FLOAT16, TensorProto.DOUBLE,
    TensorProto.BFLOAT16, TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E5M2,
}
# Operators whose results have a size that depends on elements.
DATA_DEPENDENT = {"NonZero", "NonMaxSuppression", "Unique", "Compress", "ImageDecoder"}
# The specification fixes no generator of random numbers.
RANDOM = {
    "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
    "RandomUniformLike",
}
DROPOUTS = {
    "test_training_dropout", "test_training_dropout_default", "test_training_dropout_default_mask",
    "test_training_dropout_mask",
}
OLDEST_OPSET = 7
# Cases whose expected numbers are less exact than the suite's tolerance: relative, absolute.
TOLERANCES = {
    # NumPy's float32 transform leaves 2e-7 where the sum is 0.
    "test_dft_inverse": (1e-3, 1e-6),
    "test_dft_inverse_opset19": (1e-3, 1e-6),
    # Every node rounds to float16: two units in the last place from the exact 0.46919.
    "test_attention_4d_causal_fp16": (2e-3, 1e-7),
    "test_attention_4d_causal_fp16_expanded": (2e-3, 1e-7),
}


def operators(graph):
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from operators(attribute.g)


def all_operators(model):
    yield from operators(model.graph)
    for function in model.functions:
        yield from function.node


def reason_to_leave_out(case):
    """Returns why weft does not claim a case; None where it does."""
    values = list(case.model.graph.input) + list(case.model.graph.output)
    for value in values:
        kind = value.type.WhichOneof("value")
        if kind != "tensor_type":
            return f"has a value that is no tensor ({kind.removesuffix('_type')})"
        if value.type.tensor_type.elem_type not in TYPES:
            name = TensorProto.DataType.Name(value.type.tensor_type.elem_type).lower()
            return f"has a tensor of {name}"
    opsets = {each.domain: each.version for each in case.model.opset_import}
    if opsets.get("", OLDEST_OPSET) < OLDEST_OPSET:
        return f"uses opset {opsets['']}; weft reads {OLDEST_OPSET} and up"
    if case.name in DROPOUTS:
        return "draws random numbers, whose generator is not specified (Dropout)"
    for node in all_operators(case.model):
        if node.op_type == "SequenceMap":
            return f"works on sequences or optionals ({node.op_type})"
        if node.op_type in RANDOM:
            return f"draws random numbers, whose generator is not specified ({node.op_type})"
        if node.op_type in DATA_DEPENDENT:
            return f"has a result whose size depends on elements ({node.op_type})"
        if node.op_type.startswith(("Sequence", "Optional", "ConcatFromSequence", "SplitToSequence")):
            return f"works on sequences or optionals ({node.op_type})"
        if node.op_type.startswith("String") or node.op_type == "RegexFullMatch":
            return f"works on strings ({node.op_type})"
    return None


def write_tensor(path, value, info):
    if isinstance(value, TensorProto):
        tensor = value
    else:
        tensor = numpy_helper.from_array(np.asarray(value), info.name)
    path.write_bytes(tensor.SerializeToString())


def main():
    from onnx.backend.test.case.node import collect_testcases

    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    left_out, written = [], 0
    for case in collect_testcases():
        reason = reason_to_leave_out(case)
        if reason:
            left_out.append((case.name, reason))
            continue
        place = folder / case.name
        place.mkdir(exist_ok=True)
        (place / "model.onnx").write_bytes(case.model.SerializeToString())
        relative, absolute = TOLERANCES.get(case.name, (case.rtol, case.atol))
        (place / "tolerance").write_text(f"{relative} {absolute}\n")
        inputs, outputs = case.data_sets[0]
        graph = case.model.graph
        for i, value in enumerate(inputs):
            write_tensor(place / f"input_{i}.pb", value, graph.input[i])
        for i, value in enumerate(outputs):
            write_tensor(place / f"output_{i}.pb", value, graph.output[i])
        written += 1
    (folder / "left_out").write_text("".join(f"{name}\t{why}\n" for name, why in left_out))
    print(f"onnx_cases: {written} cases in {folder}, {len(left_out)} left out")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main()
