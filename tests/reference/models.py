"""MLP, ResNet-20 and GPT with the weights, batches and optimizers of README.md."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

import formula

BATCHES = 8  # step s uses batch s % BATCHES


def uniform(stream, shape, scale=1.0, shift=0.0):
    return torch.from_numpy(formula.uniform(stream, shape, scale, shift))


def integers(stream, shape, count):
    return torch.from_numpy(formula.integers(stream, shape, count))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(784, 256), nn.Linear(256, 10)

    def forward(self, images):
        return self.fc2(F.relu(self.fc1(images)))


class BasicBlock(nn.Module):
    """ResNet block with option A of He et al. 2015: the shortcut subsamples and appends zeros."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.stride, self.extra = stride, outputs - inputs
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)

    def forward(self, x):
        shortcut = x
        if self.stride != 1:
            shortcut = F.pad(x[:, :, ::self.stride, ::self.stride], (0, 0, 0, 0, 0, self.extra))
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + shortcut)


class ResNet20(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
        self.layer1, self.layer2, self.layer3 = (
            nn.Sequential(BasicBlock(inputs, width, stride), BasicBlock(width, width, 1),
                          BasicBlock(width, width, 1))
            for inputs, width, stride in ((16, 16, 1), (16, 32, 2), (32, 64, 2)))
        self.fc = nn.Linear(64, 10)

    def forward(self, images):
        x = F.relu(self.bn1(self.conv1(images)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(x.mean((2, 3)))


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.c_attn = nn.Linear(width, 3 * width, bias=False)
        self.c_proj = nn.Linear(width, width, bias=False)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2)
                   for part in self.c_attn(x).split(width, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(batch, length, width))


class GptBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(width, bias=False), Attention(width, heads)
        self.ln_2 = nn.LayerNorm(width, bias=False)
        self.c_fc = nn.Linear(width, 4 * width, bias=False)
        self.c_proj = nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.c_proj(F.gelu(self.c_fc(self.ln_2(x))))


class Gpt(nn.Module):
    def __init__(self, layers=4, heads=4, width=128, context=64, vocabulary=65):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.h = nn.ModuleList([GptBlock(width, heads) for _ in range(layers)])
        self.ln_f = nn.LayerNorm(width, bias=False)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe.weight[:ids.shape[1]]
        for block in self.h:
            x = block(x)
        return F.linear(self.ln_f(x), self.wte.weight).flatten(0, 1)


def relu_scale(shape):
    return math.sqrt(6.0 / math.prod(shape[1:]))


def parameter_rule(spec, name, shape):
    """Returns the rule of README.md for a parameter's initial value."""
    if len(shape) == 1 and name.endswith("weight"):
        gain = spec["gain"](name) if "gain" in spec else None
        return ("constant", gain) if gain else ("one", None)
    if len(shape) == 1:
        return "uniform", 0.01
    return "uniform", spec["matrix_scale"](shape)


def image_batch(shape):
    def make(b):
        return uniform(1000 + b, shape), integers(2000 + b, shape[:1], 10)
    return make


def token_batch(b, rows=4, length=64, vocabulary=65):
    """Returns tokens of a noisy affine recurrence, so that the next token can be learnt."""
    table = integers(1000 + b, [rows, length + 1], 4)
    table[:, 0] = integers(1000 + b, [rows, length + 1], vocabulary)[:, 0]
    for j in range(1, length + 1):
        table[:, j] = (5 * table[:, j - 1] + table[:, j]) % vocabulary
    return table[:, :-1].contiguous(), table[:, 1:].flatten()


SPECS = {
    "mlp": {
        "build": Mlp, "matrix_scale": relu_scale, "batch": image_batch([64, 784]), "clip": None,
        "model": "784-256-10, ReLU, biases",
        "optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 0.0},
    },
    "resnet20": {
        "build": ResNet20, "matrix_scale": relu_scale, "batch": image_batch([16, 3, 32, 32]),
        "clip": None, "parts_in_f32": True,
        "model": "ResNet-20, CIFAR form, option A shortcut, BatchNorm eps 1e-5 momentum 0.1",
        "optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 1e-4},
    },
    # At this learning rate float32 runs stay comparable for more than a few steps.
    "resnet20_slow": {
        "build": ResNet20, "matrix_scale": relu_scale, "batch": image_batch([16, 3, 32, 32]),
        "clip": None,
        "model": "ResNet-20, CIFAR form, option A shortcut, BatchNorm eps 1e-5 momentum 0.1",
        "optimizer": {"name": "sgd", "lr": 0.001, "momentum": 0.9, "weight_decay": 1e-4},
    },
    "gpt": {
        "build": Gpt, "matrix_scale": lambda shape: 0.04, "batch": token_batch, "clip": 1.0,
        "model": "pre-norm GPT, 4 layers, 4 heads, width 128, context 64, vocabulary 65, "
                 "no biases, exact GELU, tied head, LayerNorm eps 1e-5",
        "optimizer": {"name": "adamw", "lr": 1e-3, "betas": [0.9, 0.99], "eps": 1e-8,
                      "weight_decay": 0.1, "weight_decay_on": "rank >= 2"},
    },
}


def build(name, dtype, nudge=0.0, draw=0):
    """Returns the model with its documented weights. `nudge` scales each by 1 + nudge * [-1, 1),
    with other random numbers for each `draw`."""
    spec = SPECS[name]
    model = spec["build"]().to(dtype)
    with torch.no_grad():
        for p, (key, parameter) in enumerate(model.named_parameters()):
            kind, scale = parameter_rule(spec, key, parameter.shape)
            value = torch.ones_like(parameter, dtype=torch.float64)
            if kind == "uniform":
                value = uniform(p, list(parameter.shape), scale)
            elif kind == "constant":
                value = value * scale
            if nudge:
                stream = 900000 + 1000 * draw + p
                value = value * (1 + nudge * uniform(stream, list(parameter.shape)))
            parameter.copy_(value)
    return model


def make_optimizer(name, model):
    options = {k: v for k, v in SPECS[name]["optimizer"].items()
               if k not in ("name", "weight_decay_on")}
    if SPECS[name]["optimizer"]["name"] == "sgd":
        return torch.optim.SGD(model.parameters(), **options)
    decay = options.pop("weight_decay")
    groups = [{"params": [p for p in model.parameters() if p.dim() >= 2], "weight_decay": decay},
              {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, **options)
