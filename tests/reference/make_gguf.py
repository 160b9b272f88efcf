"""Writes gguf/every_type.gguf and gguf/every_type.json: a file of the `gguf` package with a tensor of each type that weft reads,
and the values and bytes of that package.

    pip install gguf==0.19.0 && python tests/reference/make_gguf.py

`python tests/reference/make_gguf.py FILE` prints what the package reads in a file, for comparison with `weft inspect FILE`.
"""
import importlib.metadata
import json
import pathlib
import sys

import gguf
import numpy as np

FOLDER = pathlib.Path(__file__).parent / "gguf"
TYPES = gguf.GGMLQuantizationType
SIMPLE = [TYPES.Q8_0, TYPES.Q4_0, TYPES.Q4_1, TYPES.Q5_0, TYPES.Q5_1]
K_TYPES = [TYPES.Q4_K, TYPES.Q5_K, TYPES.Q6_K]


def bits(values):
    """float32 numbers as hexadecimal digits of their bits, little-endian."""
    return np.ascontiguousarray(values, dtype="<f4").tobytes().hex()


def numbers_to_quantize():
    """Rows of 64 with what quantizers must take care of: zeros, one sign, ties, large and tiny scales."""
    random = np.random.default_rng(24)
    rows = random.standard_normal((12, 64)).astype(np.float32)
    rows[1] = 0
    rows[2] = np.abs(rows[2])
    rows[3] = -np.abs(rows[3])
    rows[4] = np.arange(64) / 4 - 8
    rows[5] *= 1e4
    rows[6] *= 1e-4
    rows[7, 1:] = 0
    rows[8] = 0.75
    rows[9] = np.round(rows[9] * 2) / 2
    return rows


def random_blocks(qtype, random, rows, blocks):
    """Bytes of any value, but for scales, which are finite."""
    _, size = gguf.GGML_QUANT_SIZES[qtype]
    data = random.integers(0, 256, (rows, blocks, size), dtype=np.uint8)
    halves = {TYPES.Q4_K: [0, 2], TYPES.Q5_K: [0, 2], TYPES.Q6_K: [208], TYPES.Q4_1: [0, 2], TYPES.Q5_1: [0, 2]}
    for at in halves.get(qtype, [0]):
        scales = random.standard_normal((rows, blocks)).astype(np.float16)
        scales[0, 0] = 6e-8  # subnormal
        data[:, :, at:at + 2] = scales.view(np.uint8).reshape(rows, blocks, 2)
    return data.reshape(rows, blocks * size)


def main():
    FOLDER.mkdir(exist_ok=True)
    random = np.random.default_rng(7)
    path = FOLDER / "every_type.gguf"
    writer = gguf.GGUFWriter(path, "test")
    writer.add_uint8("a.u8", 200)
    writer.add_int8("a.i8", -100)
    writer.add_uint16("a.u16", 60000)
    writer.add_int16("a.i16", -30000)
    writer.add_uint32("a.u32", 4000000000)
    writer.add_int32("a.i32", -2000000000)
    writer.add_float32("a.f32", 0.1)
    writer.add_bool("a.bool", True)
    writer.add_string("a.text", "zwölf\n")
    writer.add_uint64("a.u64", 2**63 + 1)
    writer.add_int64("a.i64", -(2**62))
    writer.add_float64("a.f64", 0.1)
    writer.add_array("a.numbers", [1, 2, 3])
    writer.add_array("a.texts", ["a", "", "ccc"])
    writer.add_array("a.fractions", [0.5, -0.25])
    writer.add_array("a.flags", [True, False])
    result = {"package": f"gguf {importlib.metadata.version('gguf')}", "tensors": {}, "quantized": {}}

    numbers = random.standard_normal((3, 5)).astype(np.float32)
    writer.add_tensor("plain.F32", numbers)
    writer.add_tensor("plain.F16", numbers.astype(np.float16))
    writer.add_tensor("plain.BF16", gguf.quantize(numbers, TYPES.BF16).view(np.uint8), raw_dtype=TYPES.BF16)
    writer.add_tensor("plain.I32", np.arange(6, dtype=np.int32).reshape(2, 3))
    result["tensors"]["plain.F32"] = bits(numbers)
    result["tensors"]["plain.F16"] = bits(numbers.astype(np.float16).astype(np.float32))
    result["tensors"]["plain.BF16"] = bits(gguf.dequantize(gguf.quantize(numbers, TYPES.BF16), TYPES.BF16))
    for qtype in SIMPLE + K_TYPES:
        name = f"blocks.{qtype.name}"
        data = random_blocks(qtype, random, rows=2, blocks=2)
        writer.add_tensor(name, data, raw_dtype=qtype)
        result["tensors"][name] = bits(gguf.dequantize(data, qtype))
    to_quantize = numbers_to_quantize()
    result["to_quantize"] = bits(to_quantize)
    for qtype in SIMPLE:
        result["quantized"][qtype.name] = gguf.quantize(to_quantize, qtype).tobytes().hex()
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    (FOLDER / "every_type.json").write_text(json.dumps(result, indent=1) + "\n")


def show(path):
    reader = gguf.GGUFReader(path)
    for key, field in reader.fields.items():
        print(key, field.types[0].name, field.contents())
    for tensor in reader.tensors:
        is_number = tensor.tensor_type in (TYPES.I8, TYPES.I16, TYPES.I32, TYPES.I64, TYPES.F64)
        values = tensor.data if is_number else gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float64)
        print(tensor.name, tensor.tensor_type.name, list(reversed(tensor.shape.tolist())), f"{values.sum():.9g}")


if __name__ == "__main__":
    show(sys.argv[1]) if len(sys.argv) > 1 else main()
