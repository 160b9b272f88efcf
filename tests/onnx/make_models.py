#!/usr/bin/env python3
"""Writes the small models of tests/onnx: python3 tests/onnx/make_models.py (needs onnx and numpy).

opsets/NAME.onnx   forms of operators in old opsets, which the onnx package's suite lacks. Operands
                   are initializers; the outputs are pairs of a result and what it must be, which
                   NumPy computed.
refused/NAME.onnx  models that weft refuses (tests/error/onnx_test.cpp)
"""

import pathlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FOLDER = pathlib.Path(__file__).parent
RANDOM = np.random.default_rng(0)


def draw(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def write(path, graph, opset, domains=(), functions=()):
    imports = [helper.make_opsetid("", opset)] + [helper.make_opsetid(*each) for each in domains]
    model = helper.make_model(graph, opset_imports=imports, ir_version=8, functions=functions)
    path.write_bytes(model.SerializeToString())


def case(name, opset, op, operands, expected, domain="", outputs=None, **attributes):
    """Writes one node; operands are arrays, or None where the node has none. `outputs` are the
    results' names with "" for those that the node does not give."""
    named = {f"x{i}": each for i, each in enumerate(operands) if each is not None}
    results = [f"y{i}" for i in range(len(expected))]
    node = helper.make_node(op, [f"x{i}" if each is not None else "" for i, each in enumerate(operands)],
                            outputs or results, domain=domain, **attributes)
    nodes_case(name, opset, [node], named, dict(zip(results, expected)),
               [(domain, 1)] if domain else [])


def nodes_case(name, opset, nodes, named, expected, domains=()):
    initializers = [numpy_helper.from_array(np.asarray(value), key) for key, value in named.items()]
    outputs = []
    for key, value in expected.items():
        value = np.asarray(value)
        initializers.append(numpy_helper.from_array(value, f"want_{key}"))
        kind = helper.np_dtype_to_tensor_dtype(value.dtype)
        for each in (key, f"want_{key}"):
            outputs.append(helper.make_tensor_value_info(each, kind, list(value.shape)))
    graph = helper.make_graph(nodes, name, [], outputs, initializers)
    write(FOLDER / "opsets" / f"{name}.onnx", graph, opset, domains)


def softmax(x, axes):
    powers = np.exp(x - x.max(axes, keepdims=True))
    return powers / powers.sum(axes, keepdims=True)


def opset_cases():
    x = draw(2, 3, 4)
    case("softmax_11_flattens", 11, "Softmax", [x], [softmax(x, (1, 2))])
    case("softmax_13_one_axis", 13, "Softmax", [x], [softmax(x, (2,))])
    case("log_softmax_7_flattens", 7, "LogSoftmax", [x], [np.log(softmax(x, (1, 2)))], axis=1)
    hard = np.zeros((2, 12), np.float32)
    hard[np.arange(2), x.reshape(2, 12).argmax(1)] = 1
    case("hardmax_11_flattens", 11, "Hardmax", [x], [hard.reshape(2, 3, 4)])
    case("clip_7_attributes", 7, "Clip", [x], [x.clip(-0.5, 0.25)], min=-0.5, max=0.25)
    case("clip_11_only_max", 11, "Clip", [x, None, np.float32(0.25)], [np.minimum(x, 0.25)])
    case("slice_9_attributes", 9, "Slice", [x], [x[:, 1:, -3:-1]],
         axes=[1, 2], starts=[1, -3], ends=[100, -1])
    case("pad_7_attributes", 7, "Pad", [x], [np.pad(x, [(0, 0), (1, 0), (0, 2)], constant_values=1.5)],
         pads=[0, 1, 0, 0, 0, 2], value=1.5)
    image = draw(1, 2, 2, 3)
    twice = image.repeat(2, 2).repeat(3, 3)
    case("upsample_7_attributes", 7, "Upsample", [image], [twice], scales=[1.0, 1.0, 2.0, 3.0])
    case("upsample_9_operand", 9, "Upsample", [image, np.array([1, 1, 2, 3], np.float32)], [twice])
    case("resize_10", 10, "Resize", [image, np.array([1, 1, 2, 3], np.float32)], [twice])
    scale, bias, mean = draw(2), draw(2), draw(2)
    variance = abs(draw(2)) + 0.5
    beside = (1, 2, 1, 1)
    normal = ((image - mean.reshape(beside)) / np.sqrt(variance.reshape(beside) + 1e-3)
              * scale.reshape(beside) + bias.reshape(beside))
    case("batch_normalization_7", 7, "BatchNormalization", [image, scale, bias, mean, variance],
         [normal], epsilon=1e-3)
    case("batch_normalization_9", 9, "BatchNormalization", [image, scale, bias, mean, variance],
         [normal], epsilon=1e-3)
    case("dropout_7", 7, "Dropout", [x], [x], ratio=0.5)
    case("dropout_10_mask", 10, "Dropout", [x], [x, np.ones(x.shape, bool)], ratio=0.5)
    order = np.argsort(-x, -1)[..., :2]
    best = np.take_along_axis(x, order, -1)
    case("top_k_9_attribute", 9, "TopK", [x], [best, order], k=2)
    case("top_k_10_operand", 10, "TopK", [x, np.array([2])], [best, order])
    one = draw(1, 3, 1, 2)
    case("squeeze_11_attribute", 11, "Squeeze", [one], [one[0, :, :, :]], axes=[0])
    case("squeeze_7_all", 7, "Squeeze", [one], [one.squeeze()])
    case("unsqueeze_11_attribute", 11, "Unsqueeze", [x], [x[None, :, :, :, None]], axes=[0, -1])
    case("split_11_attribute", 11, "Split", [x], [x[..., :1], x[..., 1:]], axis=2, split=[1, 3])
    case("reduce_sum_11_attribute", 11, "ReduceSum", [x], [x.sum((0, 2))], axes=[0, 2], keepdims=0)
    case("reduce_max_17_attribute", 17, "ReduceMax", [x], [x.max(1, keepdims=True)], axes=[1])
    case("reduce_l2_13_all", 13, "ReduceL2", [x], [np.sqrt((x * x).sum()).reshape(1, 1, 1)])
    a, b, c = draw(2, 3), draw(4, 3), draw(4)
    case("gemm_7_broadcasts", 7, "Gemm", [a, b, c], [0.5 * a @ b.T + 2 * c],
         transB=1, alpha=0.5, beta=2.0)
    case("flatten_9_negative_free", 9, "Flatten", [x], [x.reshape(6, 4)], axis=2)
    slope = draw(3, 1)
    case("prelu_7_broadcasts", 7, "PRelu", [x, slope], [np.where(x < 0, x * slope, x)])
    case("arg_max_11", 11, "ArgMax", [x], [x.argmax(1)], axis=1, keepdims=0)
    case("cast_9", 9, "Cast", [x], [x.astype(np.int32)], to=TensorProto.INT32)
    rows = np.array([[1, 0, 2]])
    scattered = x[0, :2].copy()
    scattered[rows[0, :1], 0] = 5
    case("scatter_9", 9, "Scatter", [x[0, :2], np.array([[1]]), np.array([[5]], np.float32)],
         [scattered])
    case("one_hot_9", 9, "OneHot", [np.array([2, 0]), np.array(3), np.array([0, 1], np.float32)],
         [np.eye(3, dtype=np.float32)[[2, 0]]])
    groups = draw(1, 4, 3)
    parts = groups.reshape(1, 2, 6)
    parts = (parts - parts.mean(-1, keepdims=True)) / np.sqrt(parts.var(-1, keepdims=True) + 1e-5)
    by_group, shift = draw(2), draw(2)
    case("group_normalization_18_by_group", 18, "GroupNormalization", [groups, by_group, shift],
         [(parts * by_group.reshape(1, 2, 1) + shift.reshape(1, 2, 1)).reshape(1, 4, 3)],
         num_groups=2)
    pooled = image[:, :, :, :2] + image[:, :, :, 1:]
    case("average_pool_7", 7, "AveragePool", [image], [(pooled[:, :, :1] + pooled[:, :, 1:]) / 4],
         kernel_shape=[2, 2])
    case("mul_7_broadcasts", 7, "Mul", [x, slope], [x * slope])
    case("max_8_any_number", 8, "Max", [x, x * 2, -x], [np.maximum(x * 2, np.maximum(x, -x))])
    # Straddles ties and both limits.
    scale = np.array([0.5, 0.25], np.float32)
    zero = np.array([3, 250], np.uint8)
    given = np.array([[0.25, 0.75, -9, 200], [0.125, 0.375, 1.25, -80]], np.float32)
    numbers = (np.rint(given / scale[:, None]) + zero[:, None]).clip(0, 255).astype(np.uint8)
    case("quantize_10_ties", 13, "QuantizeLinear", [given, scale, zero], [numbers], axis=0)
    real = (numbers.astype(np.float32) - zero[:, None]) * scale[:, None]
    nodes = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], axis=0),
             helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], axis=0)]
    nodes_case("quantize_and_back", 13, nodes, {"x": given, "s": scale, "z": zero}, {"y": real})
    # The zero of four bits, which a Constant holds, says where the numbers saturate.
    wide = np.array([-30, -9, 0, 9, 30], np.float32)
    zero = helper.make_tensor("zero", TensorProto.INT4, [], [1])
    nodes = [helper.make_node("Constant", [], ["z"], value=zero),
             helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
             helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"])]
    nodes_case("quantize_21_constant_of_four_bits", 21, nodes, {"x": wide, "s": np.float32(2)},
               {"y": ((np.rint(wide / 2) + 1).clip(-8, 7) - 1) * np.float32(2)})
    # A loop of three steps that doubles, and a branch whose condition is not known.
    body = helper.make_graph(
        [helper.make_node("Add", ["h", "h"], ["h2"]), helper.make_node("Identity", ["c"], ["c2"]),
         helper.make_node("Identity", ["h2"], ["scan"])], "body",
        [helper.make_tensor_value_info("i", TensorProto.INT64, []),
         helper.make_tensor_value_info("c", TensorProto.BOOL, []),
         helper.make_tensor_value_info("h", TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info("c2", TensorProto.BOOL, []),
         helper.make_tensor_value_info("h2", TensorProto.FLOAT, [2]),
         helper.make_tensor_value_info("scan", TensorProto.FLOAT, [2])])
    start = draw(2)
    case("loop_11", 11, "Loop", [np.array(3), np.array(True), start],
         [start * 8, np.stack([start * 2, start * 4, start * 8])], body=body)
    branch = {key: helper.make_graph([helper.make_node(op, ["x"], [f"{key}_y"])], key, [],
                                     [helper.make_tensor_value_info(f"{key}_y", TensorProto.FLOAT, [2])])
              for key, op in (("yes", "Neg"), ("no", "Abs"))}
    nodes = [helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
             helper.make_node("Less", ["s", "zero"], ["c"]),
             helper.make_node("If", ["c"], ["y"], then_branch=branch["yes"], else_branch=branch["no"])]
    negative = np.array([-3, 1], np.float32)
    nodes_case("if_of_a_computed_condition", 11, nodes,
               {"x": negative, "zero": np.float32(0)}, {"y": -negative})
    # A hint of the operator's first form, which exporters kept on writing.
    case("relu_13_hint_of_1", 13, "Relu", [start], [np.maximum(start, 0)], consumed_inputs=[1])
    recurrent_cases()
    unsigned_cases()
    block_cases()
    no_step_cases()
    # Coordinates (i + 0.5) / 2, rounded up, of opsets 11 and 12.
    row = np.array([[[1, 2, 3]]], np.float32)
    case("resize_11_tf_half_pixel_for_nn", 11, "Resize",
         [row, np.zeros(0, np.float32), np.array([1, 1, 2], np.float32)],
         [row[..., [1, 1, 2, 2, 2, 2]]], mode="nearest", nearest_mode="ceil",
         coordinate_transformation_mode="tf_half_pixel_for_nn")


def unsigned_cases():
    for kind in (np.uint16, np.uint32):
        name, top = kind.__name__, np.iinfo(kind).max
        a, b = np.array([top, 1, top // 2 + 8, 3], kind), np.array([2, top, 3, 1], kind)
        three, shift = kind(3), dict(direction="RIGHT")
        nodes = [helper.make_node("Add", ["a", "b"], ["sum"]), helper.make_node("Sub", ["a", "b"], ["less"]),
                 helper.make_node("Mul", ["a", "b"], ["product"]), helper.make_node("Div", ["a", "b"], ["quotient"]),
                 helper.make_node("Mod", ["a", "b"], ["rest"]), helper.make_node("Max", ["a", "b"], ["most"]),
                 helper.make_node("BitShift", ["a", "three"], ["right"], **shift),
                 helper.make_node("BitShift", ["a", "three"], ["left"], direction="LEFT"),
                 helper.make_node("BitwiseNot", ["a"], ["not"]), helper.make_node("Greater", ["a", "b"], ["greater"]),
                 helper.make_node("Cast", ["a"], ["double"], to=TensorProto.DOUBLE)]
        wanted = {"sum": a + b, "less": a - b, "product": a * b, "quotient": a // b, "rest": a % b,
                  "most": np.maximum(a, b), "right": a >> three, "left": a << three, "not": ~a,
                  "greater": a > b, "double": a.astype(np.float64)}
        nodes_case(f"{name}_18_arithmetic", 18, nodes, {"a": a, "b": b, "three": three}, wanted)
    # Elements in the fields of numbers: those of uint32 are in uint64_data.
    graph = helper.make_graph(
        [helper.make_node("Cast", ["a"], ["y"], to=TensorProto.INT64),
         helper.make_node("Cast", ["b"], ["z"], to=TensorProto.INT64)], "fields", [],
        [helper.make_tensor_value_info(n, TensorProto.INT64, [2]) for n in ("y", "wy", "z", "wz")],
        [helper.make_tensor("a", TensorProto.UINT32, [2], [2**32 - 1, 7]),
         helper.make_tensor("b", TensorProto.UINT16, [2], [2**16 - 1, 7]),
         numpy_helper.from_array(np.array([2**32 - 1, 7]), "wy"),
         numpy_helper.from_array(np.array([2**16 - 1, 7]), "wz")])
    write(FOLDER / "opsets" / "unsigned_fields.onnx", graph, 17)
    x, scale, zero = np.array([-9, -0.25, 0.25, 0.75, 3e4], np.float32), np.float32(0.5), np.uint16(1000)
    numbers = (np.rint(x / scale) + zero).clip(0, 65535).astype(np.uint16)
    nodes = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
             helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"])]
    nodes_case("quantize_21_uint16", 21, nodes, {"x": x, "s": scale, "z": zero},
               {"q": numbers, "y": (numbers.astype(np.float32) - zero) * scale})


def block_cases():
    """Pairs that quantize in blocks, alone and before products: along the sums, the rows, and both."""
    x = (np.arange(32, dtype=np.float32).reshape(4, 8) * 37 % 23 - 11) / 4
    w = (np.arange(24, dtype=np.int32).reshape(8, 3) * 11 % 15 - 7).astype(np.int8)
    by_column = np.array([0.5, 0.25, 1], np.float32)
    for name, axis, size, scales in (("sums", 1, 4, (4, 2)), ("rows", 0, 2, (2, 8))):
        scale = (np.arange(8, dtype=np.float32).reshape(scales) + 1) / 16 if name == "sums" else (
            np.arange(16, dtype=np.float32).reshape(scales) + 1) / 16
        zero = (np.arange(scale.size) % 5 - 2).reshape(scales).astype(np.int8)
        wide, offset = scale.repeat(size, axis), zero.repeat(size, axis).astype(np.float32)
        numbers = (np.rint(x / wide) + offset).clip(-128, 127)
        real = ((numbers - offset) * wide).astype(np.float32)
        blocks = dict(axis=axis, block_size=size)
        nodes = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], **blocks),
                 helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], **blocks),
                 helper.make_node("DequantizeLinear", ["w", "ws"], ["v"], axis=1),
                 helper.make_node("MatMul", ["y", "v"], ["p"])]
        nodes_case(f"quantize_21_blocks_of_{name}", 21, nodes,
                   {"x": x, "s": scale, "z": zero, "w": w, "ws": by_column},
                   {"q": numbers.astype(np.int8), "y": real, "p": real @ (w * by_column)})


def no_step_cases():
    """A loop and a scan of no step: of declared shapes, and of those that the body computes."""
    for name, shape in (("declared", [2, 3]), ("computed", None)):
        body = helper.make_graph(
            [helper.make_node("Identity", ["c"], ["c2"]), helper.make_node("Identity", ["h"], ["h2"]),
             helper.make_node("Concat", ["h", "h"], ["twice"], axis=1)], "body",
            [helper.make_tensor_value_info("i", TensorProto.INT64, []),
             helper.make_tensor_value_info("c", TensorProto.BOOL, []),
             helper.make_tensor_value_info("h", TensorProto.FLOAT, None)],
            [helper.make_tensor_value_info("c2", TensorProto.BOOL, []),
             helper.make_tensor_value_info("h2", TensorProto.FLOAT, None),
             helper.make_tensor_value_info("twice", TensorProto.FLOAT, shape and [2, 6])])
        start = np.arange(6, dtype=np.float32).reshape(2, 3)
        case(f"loop_16_of_no_step_{name}", 16, "Loop", [np.array(0), np.array(True), start],
             [start, np.zeros((0, 2, 6), np.float32)], body=body)
    body = helper.make_graph([helper.make_node("Add", ["h", "r"], ["h2"]),
                              helper.make_node("Concat", ["r", "r"], ["twice"], axis=0)], "body",
                             [helper.make_tensor_value_info(n, TensorProto.FLOAT, [3]) for n in "hr"],
                             [helper.make_tensor_value_info("h2", TensorProto.FLOAT, [3]),
                              helper.make_tensor_value_info("twice", TensorProto.FLOAT, None)])
    start = np.arange(3, dtype=np.float32)
    case("scan_16_of_no_step", 16, "Scan", [start, np.zeros((0, 3), np.float32)],
         [start, np.zeros((0, 6), np.float32)], body=body, num_scan_inputs=1)


def gru(x, w, r, gates, new):
    """Returns the last state [B, H] of a GRU without biases that resets before its product."""
    h = np.zeros((x.shape[1], r.shape[1]), np.float32)
    (wz, wr, wn), (rz, rr, rn) = np.split(w, 3), np.split(r, 3)
    for step in x:
        update, reset = gates(step @ wz.T + h @ rz.T), gates(step @ wr.T + h @ rr.T)
        h = (1 - update) * new(step @ wn.T + (reset * h) @ rn.T) + update * h
    return h


def recurrent_cases():
    """Functions take the numbers that they have from the lists of a node, one after the other."""
    x, w, r = draw(3, 2, 4), draw(2, 15, 4), draw(2, 15, 5)

    def sigmoid(v):
        return 1 / (1 + np.exp(-v))

    def leaky(v):
        return np.where(v < 0, np.float32(0.2) * v, v)

    def hard(v):
        return np.clip(np.float32(0.3) * v + np.float32(0.4), 0, 1)

    def scaled(v):
        return np.float32(0.7) * np.tanh(np.float32(0.6) * v)

    last = [gru(x, w[0], r[0], sigmoid, leaky), gru(x[::-1], w[1], r[1], hard, scaled)]
    case("gru_14_numbers_in_turn", 14, "GRU", [x, w, r], [np.stack(last)], outputs=["", "y0"],
         direction="bidirectional", hidden_size=5,
         activations=["Sigmoid", "LeakyRelu", "HardSigmoid", "ScaledTanh"],
         activation_alpha=[0.2, 0.3, 0.7], activation_beta=[0.4, 0.6])


def refused():
    value = helper.make_tensor_value_info
    x, y = value("x", TensorProto.FLOAT, [2, 3]), value("y", TensorProto.FLOAT, [2, 3])

    def model(name, nodes, opset=13, inputs=(x,), initializers=(), domains=(), output=y, inside=(),
              functions=()):
        graph = helper.make_graph(nodes, name, list(inputs), [output], list(initializers),
                                  value_info=list(inside))
        write(FOLDER / "refused" / f"{name}.onnx", graph, opset, domains, functions)

    node = helper.make_node
    model("unknown_operators", [node("Fancy", ["x"], ["a"], domain="my.ops"),
                                node("Fancy", ["a"], ["b"], domain="my.ops"),
                                node("NonMaxSuppression", ["b", "b"], ["y"])],
          domains=[("my.ops", 1)])
    model("cycle", [node("Add", ["x", "b"], ["a"]), node("Neg", ["a"], ["b"]),
                    node("Neg", ["a"], ["y"])])
    model("nowhere", [node("Add", ["x", "absent"], ["y"], name="sum")])
    model("twice", [node("Neg", ["x"], ["y"]), node("Abs", ["x"], ["y"])])
    model("old_opset", [node("Neg", ["x"], ["y"])], opset=6)
    model("new_opset", [node("Neg", ["x"], ["y"])], opset=99)
    model("shapes", [node("MatMul", ["x", "x"], ["y"], name="product")])
    model("attribute", [node("Softmax", ["x"], ["y"], name="soft", axis=7)])
    model("dynamic_shape", [node("Cast", ["x"], ["s"], to=TensorProto.INT64),
                            node("ReduceSum", ["s"], ["t"], keepdims=0),
                            node("Range", ["t", "t", "t"], ["r"]),
                            node("Reshape", ["x", "r"], ["y"], name="reshape")])
    body = helper.make_graph([node("Identity", ["c"], ["c2"])], "body",
                             [value("i", TensorProto.INT64, []), value("c", TensorProto.BOOL, [])],
                             [value("c2", TensorProto.BOOL, [])])
    endless = [numpy_helper.from_array(np.array(True), "go")]
    model("endless_loop", [node("Loop", ["", "go"], [], body=body, name="loop"),
                           node("Neg", ["x"], ["y"])], initializers=endless)

    # What onnxruntime refuses, too: parts of a node that its operator does not have.
    model("unknown_attribute", [node("Relu", ["x"], ["y"], name="act", foo=1)], opset=17)
    model("old_attribute", [node("Squeeze", ["x"], ["y"], name="less", axes=[0])])
    two = node("Elu", ["x"], ["y"], name="act", alpha=0.5)
    two.attribute.append(helper.make_attribute("alpha", 0.1))
    model("two_attributes", [two])
    model("operands", [node("Relu", ["x", "x"], ["y"], name="act")])
    model("outputs", [node("Relu", ["x"], ["y", "z"], name="act")])
    model("old_operands", [node("Clip", ["x", "", "x"], ["y"], name="limit")], opset=10)
    model("new_operator", [node("Gelu", ["x"], ["y"], name="act")], opset=17)
    model("no_operator_set", [node("Binarizer", ["x"], ["y"], name="step", domain="ai.onnx.ml")])
    double = helper.make_function("own", "Double", ["a"], ["b"], [node("Add", ["a", "a"], ["b"])],
                                  [helper.make_opsetid("", 13)])
    model("function", [node("Double", ["x"], ["y"], name="call", domain="own", by=3)],
          domains=[("own", 1)], functions=[double])
    refers = node("Elu", ["x"], ["y"], name="act")
    refers.attribute.append(onnx.AttributeProto(name="alpha", ref_attr_name="by",
                                                type=onnx.AttributeProto.FLOAT))
    model("reference", [refers])
    model("output_type", [node("Relu", ["x"], ["y"])], output=value("y", TensorProto.INT64, [2, 3]))
    model("inner_type", [node("Relu", ["x"], ["h"]), node("Relu", ["h"], ["y"])],
          inside=[value("h", TensorProto.INT64, [2, 3])])


if __name__ == "__main__":
    for kind in ("opsets", "refused"):
        (FOLDER / kind).mkdir(exist_ok=True)
        for old in (FOLDER / kind).glob("*.onnx"):
            old.unlink()
    opset_cases()
    refused()
