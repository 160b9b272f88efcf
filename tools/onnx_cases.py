#!/usr/bin/env python3
"""Writes the cases of the onnx package's backend node suite to a folder, for the tests.

    tools/onnx_cases.py FOLDER          needs the onnx package (tools/setup.sh --onnx)
    tools/onnx_cases.py --table BUILD   writes docs/onnx-operators.md from it and BUILD/tests/onnx;
                                        with --check it says whether the page is up to date

Each case is a folder with model.onnx, input_N.pb, output_N.pb and its tolerance. Cases that weft
does not claim are left out; FOLDER/left_out lists each with its reason.
"""

import collections
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

warnings.filterwarnings("ignore")

TYPES = {
    TensorProto.FLOAT, TensorProto.UINT8, TensorProto.INT8, TensorProto.UINT16, TensorProto.INT16,
    TensorProto.UINT32, TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL,
    TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16, TensorProto.FLOAT8E4M3FN,
    TensorProto.FLOAT8E5M2, TensorProto.UINT4, TensorProto.INT4, TensorProto.UINT2,
    TensorProto.INT2,
}
# Operators whose results have a size that depends on elements; weft computes others like them
# (Compress, NonZero) where the elements are known when the model is loaded.
DATA_DEPENDENT = {"NonMaxSuppression", "Unique", "ImageDecoder"}
# The specification fixes no generator of random numbers.
RANDOM = {
    "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
    "RandomUniformLike",
}
DROPOUTS = {
    "test_training_dropout", "test_training_dropout_default", "test_training_dropout_default_mask",
    "test_training_dropout_mask",
}
OLDEST_OPSET, NEWEST_OPSET = 7, 28  # as in weft/onnx/file/model.h
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


def cases():
    """Yields each case of the suite, and why it is left out or None."""
    from onnx.backend.test.case.node import collect_testcases

    for case in collect_testcases():
        yield case, reason_to_leave_out(case)


def write_cases(folder):
    folder.mkdir(parents=True, exist_ok=True)
    left_out, written = [], 0
    for case, reason in cases():
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


# ---- the table of operators

NOT_READ = {
    "Gradient": "its graph is part of another; weft differentiates models itself",
    "ImageDecoder": "decodes files",
    "MaxRoiPool": "its regions have a size that depends on elements",
    "NonMaxSuppression": "its result's size depends on elements",
    "Unique": "its result's size depends on elements",
    "LinearClassifier": "gives labels, which may be strings, beside scores",
    "TreeEnsembleClassifier": "gives labels, which may be strings, beside scores",
    "SVMClassifier": "gives labels, which may be strings, beside scores",
    "SVMRegressor": "support vectors are not read",
    "OneHotEncoder": "categories may be strings",
    "FeatureVectorizer": "features of several tensors are not read",
}
STRINGS = {"RegexFullMatch", "CategoryMapper"}
MAPS = {"CastMap", "DictVectorizer", "ZipMap"}


def reason_not_read(name):
    if name in NOT_READ:
        return NOT_READ[name]
    if name in MAPS:
        return "works on maps"
    if name.startswith("String") or name in STRINGS:
        return "works on strings"
    if "Sequence" in name:
        return "works on sequences"
    if name.startswith("Optional"):
        return "works on optionals"
    raise SystemExit(f"onnx_cases: {name} is not read, and NOT_READ gives no reason")


PAGE = """\
# ONNX's operators

Written by `tools/onnx_cases.py --table build/release` from onnx {version}: do not edit.

Weft reads models of opsets 7 to {newest}. Shapes are static: inputs bind symbolic extents, and what a file
computes from shapes is folded. A branch whose condition is known is taken; of one that is not, both sides are computed.
Loops are unrolled.

| operator | domain | newest form | |
|---|---|---|---|
{rows}

## Cases of the onnx package's suite

Weft passes the {claimed} cases of the backend node suite that are left ({command}). It leaves out {left_out}:

| cases | reason |
|---|---|
{reasons}
"""


def write_table(build, checks):
    with tempfile.TemporaryDirectory() as folder:
        listed = pathlib.Path(folder) / "operators"
        subprocess.run([build / "tests" / "onnx", "-tc=*lists the operators*"], check=True,
                       stdout=subprocess.DEVNULL, env={**os.environ, "WEFT_ONNX_OPERATORS": str(listed)})
        read = set(listed.read_text().split())
    newest = {}
    for schema in onnx.defs.get_all_schemas():
        newest[schema.domain, schema.name] = schema.since_version
    # Those that newer opsets replace.
    newest |= {("", name): version for name, version in (("Scatter", 9), ("Upsample", 9))}
    rows = []
    for (domain, name), version in sorted(newest.items()):
        is_read = f"{domain}.{name}" in read
        read.discard(f"{domain}.{name}")
        rows.append(f"| `{name}` | {domain or 'ai.onnx'} | {version} | "
                    f"{'read' if is_read else reason_not_read(name)} |")
    if read:
        raise SystemExit(f"onnx_cases: onnx has no {', '.join(sorted(read))}")
    reasons, claimed = collections.Counter(), 0
    for _, reason in cases():
        claimed += reason is None
        if reason:
            reasons[reason] += 1
    page = PAGE.format(
        version=onnx.__version__, newest=NEWEST_OPSET, rows="\n".join(rows), claimed=claimed,
        command="`make test-onnx`", left_out=reasons.total(),
        reasons="\n".join(f"| {count} | {why} |" for why, count in
                          sorted(reasons.items(), key=lambda each: (-each[1], each[0]))))
    file = pathlib.Path(__file__).parent.parent / "docs" / "onnx-operators.md"
    if not checks:
        file.write_text(page)
    elif file.read_text() != page:
        raise SystemExit(f"onnx_cases: {file} is not up to date: {sys.argv[0]} --table {build}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--table"] and len(sys.argv) > 2 and sys.argv[3:] in ([], ["--check"]):
        write_table(pathlib.Path(sys.argv[2]), len(sys.argv) > 3)
    elif len(sys.argv) == 2 and not sys.argv[1].startswith("-"):
        write_cases(pathlib.Path(sys.argv[1]))
    else:
        sys.exit(__doc__)
