#!/usr/bin/env python3
"""Writes ONNX files of known nets with random weights, as PyTorch exports them, for tests and
benchmarks that hold weft against onnxruntime.

    bench/peers/onnx_models.py FOLDER [NAME ...]   resnet50 mobilenet_v2 bert gpt2 lstm

Needs torch, transformers and onnx. Batch is a symbolic extent of every file.
"""

import pathlib
import sys
import warnings

import torch
from torch import nn

warnings.filterwarnings("ignore")


def conv_bn(inputs, outputs, kernel, stride=1, groups=1, activation=None):
    layers = [
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
    ]
    return nn.Sequential(*layers, *([activation] if activation else []))


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs = 4 * width
        self.layers = nn.Sequential(
            conv_bn(inputs, width, 1, activation=nn.ReLU()),
            conv_bn(width, width, 3, stride, activation=nn.ReLU()),
            conv_bn(width, outputs, 1),
        )
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else conv_bn(inputs, outputs, 1, stride)

    def forward(self, x):
        return torch.relu(self.layers(x) + self.shortcut(x))


def resnet50():
    layers = [conv_bn(3, 64, 7, 2, activation=nn.ReLU()), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for width, blocks, stride in [(64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)]:
        for i in range(blocks):
            layers.append(Bottleneck(inputs, width, stride if i == 0 else 1))
            inputs = 4 * width
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000)]
    return nn.Sequential(*layers)


class InvertedResidual(nn.Module):
    def __init__(self, inputs, outputs, stride, expand):
        super().__init__()
        hidden = inputs * expand
        layers = [] if expand == 1 else [conv_bn(inputs, hidden, 1, activation=nn.ReLU6())]
        layers.append(conv_bn(hidden, hidden, 3, stride, groups=hidden, activation=nn.ReLU6()))
        layers.append(conv_bn(hidden, outputs, 1))
        self.layers = nn.Sequential(*layers)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x):
        return x + self.layers(x) if self.residual else self.layers(x)


def mobilenet_v2():
    layers, inputs = [conv_bn(3, 32, 3, 2, activation=nn.ReLU6())], 32
    for expand, outputs, blocks, stride in [
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
        (6, 160, 3, 2), (6, 320, 1, 1),
    ]:
        for i in range(blocks):
            layers.append(InvertedResidual(inputs, outputs, stride if i == 0 else 1, expand))
            inputs = outputs
    layers += [conv_bn(320, 1280, 1, activation=nn.ReLU6()), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Dropout(0.2), nn.Linear(1280, 1000))


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10000, 512)
        self.lstm = nn.LSTM(512, 512, num_layers=2, batch_first=True)
        self.head = nn.Linear(512, 10000)

    def forward(self, tokens):
        return self.head(self.lstm(self.embedding(tokens))[0])


def randomize_statistics(model):
    """Gives batch norms statistics of their own, which folding them must take into account."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.8, 1.2)
    return model


class Logits(nn.Module):
    def __init__(self, model, output):
        super().__init__()
        self.model, self.output = model, output

    def forward(self, input_ids, attention_mask):
        result = self.model(input_ids=input_ids, attention_mask=attention_mask, use_cache=False) \
            if self.output == "logits" else \
            self.model(input_ids=input_ids, attention_mask=attention_mask)
        return getattr(result, self.output)


def bert():
    from transformers import BertConfig, BertModel

    model = BertModel(BertConfig(attn_implementation="eager"), add_pooling_layer=False)
    return Logits(model, "last_hidden_state")


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    return Logits(GPT2LMHeadModel(GPT2Config(attn_implementation="eager")), "logits")


def tokens(length):
    ids = torch.arange(2 * length).reshape(2, length) % 997
    return (ids, torch.ones(2, length, dtype=torch.int64)), ["input_ids", "attention_mask"]


MODELS = {
    "resnet50": (resnet50, lambda: ((torch.randn(2, 3, 224, 224),), ["image"])),
    "mobilenet_v2": (mobilenet_v2, lambda: ((torch.randn(2, 3, 224, 224),), ["image"])),
    "bert": (bert, lambda: tokens(128)),
    "gpt2": (gpt2, lambda: tokens(128)),
    "lstm": (Lstm, lambda: ((torch.arange(2 * 64).reshape(2, 64) % 997,), ["tokens"])),
}


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:] or MODELS:
        torch.manual_seed(0)
        make, example = MODELS[name]
        model = randomize_statistics(make()).eval()
        inputs, names = example()
        path = folder / f"{name}.onnx"
        with torch.no_grad():
            torch.onnx.export(
                model, inputs, str(path), input_names=names, output_names=["output"], dynamo=False,
                opset_version=17, dynamic_axes={each: {0: "batch"} for each in [*names, "output"]},
            )
        print(f"onnx_models: {path}")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main()
