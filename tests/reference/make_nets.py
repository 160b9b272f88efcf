#!/usr/bin/env python3
"""Writes nets.json: attention, Transformers, recurrent nets with lengths, embeddings with a padding
row, shortcuts of ResNets and convolutions of volumes, in float64 (see README.md)."""
import json
import pathlib

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from models import BasicBlock, uniform

WIDTH, HEADS, BATCH, LENGTH, KEYS = 8, 2, 2, 5, 4
LENGTHS = [3, 5]  # per sequence of a batch
cases = []


def beyond(lengths, longest):
    """Returns a mask that is true where a sequence has ended."""
    return torch.arange(longest)[None, :] >= torch.tensor(lengths)[:, None]


def future(length):
    return torch.ones(length, length, dtype=torch.bool).triu(1)


def fill(net):
    """Sets the parameters by position, norm weights around 1, and returns their recipes."""
    recipes = []
    with torch.no_grad():
        for p, (name, parameter) in enumerate(net.named_parameters()):
            shift = 1 if parameter.dim() == 1 and name.endswith("weight") else 0
            parameter.copy_(uniform(p, list(parameter.shape), 0.5, shift))
            recipes.append({"name": name, "stream": p, "shape": list(parameter.shape),
                            "scale": 0.5, "shift": shift})
    return recipes


def digest(gradient, stream):
    """Returns the norm and the dot product with the formula's elements."""
    weights = uniform(stream, list(gradient.shape))
    return [gradient.norm().item(), (gradient * weights).sum().item()]


def case(name, net, function, inputs):
    """Adds a case. `function(net, **inputs)` returns a tensor or a dictionary of tensors; the loss
    is the sum of their dot products with the formula's elements."""
    net.double()
    row = {"name": name, "parameters": fill(net), "inputs": {}, "outputs": {}, "gradients": {}}
    drawn = {}
    for i, (key, shape) in enumerate(inputs.items()):
        drawn[key] = uniform(1000 + i, shape).requires_grad_()
        row["inputs"][key] = {"stream": 1000 + i, "shape": shape, "scale": 1.0, "shift": 0.0}
    results = function(net, **drawn)
    results = results if isinstance(results, dict) else {"y": results}
    loss = 0
    for i, (key, result) in enumerate(results.items()):
        row["outputs"][key] = {"shape": list(result.shape),
                               "values": result.detach().flatten().tolist()}
        loss = loss + (result * uniform(2000 + i, list(result.shape))).sum()
    wanted = {**drawn, **dict(net.named_parameters())}
    gradients = torch.autograd.grad(loss, list(wanted.values()))
    row["gradient_names"] = list(wanted)  # in the order of their streams
    for i, (key, gradient) in enumerate(zip(wanted, gradients)):
        row["gradients"][key] = digest(gradient, 3000 + i)
    cases.append(row)


def attention_cases():
    def cross(net, query, key, value, **masks):
        return net(query, key, value, need_weights=False, **masks)[0]
    x, keys = [BATCH, LENGTH, WIDTH], [BATCH, KEYS, WIDTH]
    make = lambda **options: nn.MultiheadAttention(WIDTH, HEADS, batch_first=True, **options)
    case("attention_self", make(), lambda net, x: cross(net, x, x, x), {"x": x})
    case("attention_causal", make(bias=False),
         lambda net, x: cross(net, x, x, x, attn_mask=future(LENGTH), is_causal=True), {"x": x})
    case("attention_memory", make(),
         lambda net, x, memory: cross(net, x, memory, memory,
                                      key_padding_mask=beyond([2, 4], KEYS)),
         {"x": x, "memory": keys})
    case("attention_bool_masks", make(),
         lambda net, x, key, value: cross(net, x, key, value,
                                          attn_mask=future(LENGTH)[:, :KEYS],
                                          key_padding_mask=beyond([2, 4], KEYS)),
         {"x": x, "key": keys, "value": keys})
    case("attention_float_masks", make(),
         lambda net, x, memory, added, padding: cross(net, x, memory, memory, attn_mask=added,
                                                      key_padding_mask=padding),
         {"x": x, "memory": keys, "added": [BATCH * HEADS, LENGTH, KEYS],
          "padding": [BATCH, KEYS]})
    case("attention_widths", make(kdim=6, vdim=3), cross,
         {"query": x, "key": [BATCH, KEYS, 6], "value": [BATCH, KEYS, 3]})


def transformer_cases():
    x, memory = [BATCH, LENGTH, WIDTH], [BATCH, KEYS, WIDTH]
    for first in (False, True):
        name = "first" if first else "last"
        options = {"dim_feedforward": 12, "dropout": 0.0, "norm_first": first,
                   "activation": "gelu" if first else "relu", "batch_first": True}
        case(f"encoder_layer_norm_{name}", nn.TransformerEncoderLayer(WIDTH, HEADS, **options),
             lambda net, x: net(x, src_key_padding_mask=beyond(LENGTHS, LENGTH)), {"x": x})
        case(f"decoder_layer_norm_{name}", nn.TransformerDecoderLayer(WIDTH, HEADS, **options),
             lambda net, x, memory: net(x, memory, tgt_mask=future(LENGTH), tgt_is_causal=True,
                                        memory_key_padding_mask=beyond([2, 4], KEYS)),
             {"x": x, "memory": memory})
        case(f"transformer_norm_{name}", nn.Transformer(WIDTH, HEADS, 2, 2, **options),
             lambda net, src, tgt: net(src, tgt, tgt_mask=future(LENGTH), tgt_is_causal=True,
                                       src_key_padding_mask=beyond([2, 4], KEYS),
                                       memory_key_padding_mask=beyond([2, 4], KEYS)),
             {"src": memory, "tgt": x})


def recurrent_cases():
    def run(net, x, **states):
        states = tuple(states.values())
        packed = pack_padded_sequence(x, LENGTHS, batch_first=True, enforce_sorted=False)
        y, last = net(packed, states if len(states) == 2 else states[0])
        y = pad_packed_sequence(y, batch_first=True, total_length=LENGTH + 1)[0]
        return {"y": y, **dict(zip("hc", last if isinstance(last, tuple) else (last,)))}
    x, states = [BATCH, LENGTH + 1, 3], [4, BATCH, 4]
    make = lambda cell: cell(3, 4, 2, batch_first=True, bidirectional=True)
    case("lstm_lengths", make(nn.LSTM), run, {"x": x, "h": states, "c": states})
    case("gru_lengths", make(nn.GRU), run, {"x": x, "h": states})


class ZerosAround(BasicBlock):
    """Option A as in pytorch_resnet_cifar10 and others: half of the zero channels come first."""

    def forward(self, x):
        shortcut = x
        if self.stride != 1:
            half = self.extra // 2
            shortcut = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, half, half), "constant", 0)
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + shortcut)


class Projection(BasicBlock):
    def __init__(self, inputs, outputs, stride):
        super().__init__(inputs, outputs, stride)
        self.downsample = nn.Sequential()
        if stride != 1:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False),
                                            nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.downsample(x))


class ResNet8(nn.Module):
    def __init__(self, block):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 4, 3, 1, 1, bias=False), nn.BatchNorm2d(4)
        self.layer1, self.layer2, self.layer3 = (
            nn.Sequential(block(*shape)) for shape in ((4, 4, 1), (4, 8, 2), (8, 16, 2)))
        self.fc = nn.Linear(16, 5)

    def forward(self, images):
        x = F.relu(self.bn1(self.conv1(images)))
        return self.fc(self.layer3(self.layer2(self.layer1(x))).mean((2, 3)))


def resnet_cases():
    for name, block in (("behind", BasicBlock), ("around", ZerosAround)):
        case(f"resnet_zeros_{name}", ResNet8(block), lambda net, x: net(x), {"x": [2, 3, 8, 8]})
    case("resnet_projection", ResNet8(Projection), lambda net, x: net(x), {"x": [2, 3, 8, 8]})


def volume_cases():
    case("conv3d", nn.Conv3d(4, 6, (2, 3, 1)), lambda net, x: net(x), {"x": [2, 4, 3, 4, 2]})
    case("conv3d_options", nn.Conv3d(4, 6, 3, stride=(2, 1, 3), padding=(1, 2, 0),
                                     dilation=(2, 1, 2), groups=2, bias=False),
         lambda net, x: net(x), {"x": [2, 4, 5, 6, 7]})


def embedding_cases():
    """The padding row is read like any other, but has no gradient."""
    ids = torch.tensor([[3, 1, 1], [0, 2, 1]])
    case("embedding_padding", nn.Embedding(4, 3, padding_idx=1), lambda net: net(ids), {})


if __name__ == "__main__":
    attention_cases()
    transformer_cases()
    recurrent_cases()
    embedding_cases()
    resnet_cases()
    volume_cases()
    lines = ",\n".join(json.dumps(row) for row in cases)
    made_by = f"PyTorch {torch.__version__}"
    (pathlib.Path(__file__).parent / "nets.json").write_text(
        f'{{"made_by": "{made_by}", "cases": [\n{lines}\n]}}\n', encoding="utf-8")
