"""The models of torch_peer.py, in PyTorch."""
import collections
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


# Parameter names are weft's where weft has the model, so that its weights load by name.
class Attention(nn.Module):
    def __init__(self, width, heads, causal, bias):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.c_attn = nn.Linear(width, 3 * width, bias=bias)
        self.c_proj = nn.Linear(width, width, bias=bias)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2)
                   for part in self.c_attn(x).split(width, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.c_proj(y.transpose(1, 2).reshape(batch, length, width))


class PreNormBlock(nn.Module):
    def __init__(self, width, heads, bias, gelu):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(width, bias=bias), Attention(width, heads, True, bias)
        self.ln_2 = nn.LayerNorm(width, bias=bias)
        self.c_fc = nn.Linear(width, 4 * width, bias=bias)
        self.c_proj = nn.Linear(4 * width, width, bias=bias)
        self.gelu = gelu

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.c_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate=self.gelu))


class Gpt(nn.Module):
    """GPT-2 with tied head; bias=False and gelu="none" (exact) give nanoGPT's character model."""

    def __init__(self, layers, heads, width, vocabulary, context, bias=True, gelu="tanh"):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.h = nn.Sequential(*[PreNormBlock(width, heads, bias, gelu) for _ in range(layers)])
        self.ln_f = nn.LayerNorm(width, bias=bias)
        for name, p in self.named_parameters():
            if p.dim() > 1:
                residual = name.endswith("c_proj.weight")
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * layers) if residual else 0.02)

    def forward(self, ids):
        x = self.h(self.wte(ids) + self.wpe.weight[:ids.shape[1]])
        return F.linear(self.ln_f(x), self.wte.weight).flatten(0, 1)


def gpt2():
    return Gpt(12, 12, 768, 50257, 1024)


def gpt2_xl():
    return Gpt(48, 25, 1600, 50257, 1024)


def gpt_characters(vocabulary=65):
    return Gpt(4, 4, 128, vocabulary, 64, bias=False, gelu="none")


class Output(nn.Module):
    """The end of both halves of a layer: product, residual, norm."""

    def __init__(self, inputs, width):
        super().__init__()
        self.dense, self.LayerNorm = nn.Linear(inputs, width), nn.LayerNorm(width, 1e-12)

    def forward(self, y, x):
        return self.LayerNorm(self.dense(y) + x)


class BertLayer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        each = nn.Module()
        each.query, each.key, each.value = (nn.Linear(width, width) for _ in range(3))
        self.attention = nn.Module()
        self.attention.self, self.attention.output = each, Output(width, width)
        self.intermediate = nn.Module()
        self.intermediate.dense = nn.Linear(width, 4 * width)
        self.output = Output(4 * width, width)

    def forward(self, x):
        each = self.attention.self
        q, k, v = (part(x).unflatten(2, (self.heads, -1)).transpose(1, 2)
                   for part in (each.query, each.key, each.value))
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = self.attention.output(y, x)
        return self.output(F.gelu(self.intermediate.dense(x)), x)


class Bert(nn.Module):
    """BERT-base with the masked language model's tied head, all positions predicted, no dropout."""

    def __init__(self, layers=12, heads=12, width=768, vocabulary=30522, context=512):
        super().__init__()
        self.bert, self.cls = nn.Module(), nn.Module()
        e = self.bert.embeddings = nn.Module()
        e.word_embeddings = nn.Embedding(vocabulary, width)
        e.position_embeddings = nn.Embedding(context, width)
        e.token_type_embeddings = nn.Embedding(2, width)
        e.LayerNorm = nn.LayerNorm(width, 1e-12)
        self.bert.encoder = nn.Module()
        self.bert.encoder.layer = nn.Sequential(*[BertLayer(width, heads) for _ in range(layers)])
        p = self.cls.predictions = nn.Module()
        p.transform = nn.Module()
        p.transform.dense, p.transform.LayerNorm = nn.Linear(width, width), nn.LayerNorm(width, 1e-12)
        p.bias = nn.Parameter(torch.zeros(vocabulary))
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, ids):
        e, p = self.bert.embeddings, self.cls.predictions
        where = e.position_embeddings.weight[:ids.shape[1]] + e.token_type_embeddings.weight[0]
        x = self.bert.encoder.layer(e.LayerNorm(e.word_embeddings(ids) + where))
        x = p.transform.LayerNorm(F.gelu(p.transform.dense(x)))
        return F.linear(x, e.word_embeddings.weight, p.bias).flatten(0, 1)


class LstmLm(nn.Module):
    def __init__(self, vocabulary=10000, width=512):
        super().__init__()
        self.encoder = nn.Embedding(vocabulary, width)
        self.rnn = nn.LSTM(width, width, 2, batch_first=True)
        self.decoder = nn.Linear(width, vocabulary)

    def forward(self, ids):
        return self.decoder(self.rnn(self.encoder(ids))[0]).flatten(0, 1)


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs = 4 * width
        self.conv1, self.bn1 = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False),
                                            nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn3(self.conv3(F.relu(self.bn2(self.conv2(y)))))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class Basic(nn.Module):
    """CIFAR block: the shortcut subsamples and appends zero channels (He et al. 2015, option A)."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.stride, self.extra = stride, outputs - inputs

    def forward(self, x):
        shortcut = x
        if self.stride == 2:
            shortcut = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 0, self.extra))
        return F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))) + shortcut)


def named(**layers):
    return nn.Sequential(collections.OrderedDict(layers))


def resnet50():
    def stage(inputs, width, count, stride):
        rest = [Bottleneck(4 * width, width, 1) for _ in range(count - 1)]
        return nn.Sequential(Bottleneck(inputs, width, stride), *rest)

    return named(conv1=nn.Conv2d(3, 64, 7, 2, 3, bias=False), bn1=nn.BatchNorm2d(64),
                 relu=nn.ReLU(), maxpool=nn.MaxPool2d(3, 2, 1), layer1=stage(64, 64, 3, 1),
                 layer2=stage(256, 128, 4, 2), layer3=stage(512, 256, 6, 2),
                 layer4=stage(1024, 512, 3, 2), avgpool=nn.AdaptiveAvgPool2d(1),
                 flatten=nn.Flatten(), fc=nn.Linear(2048, 1000))


def resnet20():
    def stage(inputs, width, stride):
        return nn.Sequential(Basic(inputs, width, stride), Basic(width, width, 1),
                             Basic(width, width, 1))

    return named(conv1=nn.Conv2d(3, 16, 3, 1, 1, bias=False), bn1=nn.BatchNorm2d(16),
                 relu=nn.ReLU(), layer1=stage(16, 16, 1), layer2=stage(16, 32, 2),
                 layer3=stage(32, 64, 2), pool=nn.AdaptiveAvgPool2d(1), flatten=nn.Flatten(),
                 fc=nn.Linear(64, 10))


def alexnet():
    """The one-tower model with dropout before the first two linear layers."""
    conv, relu, pool = nn.Conv2d, nn.ReLU, lambda: nn.MaxPool2d(3, 2)
    return named(
        features=nn.Sequential(
            conv(3, 64, 11, 4, 2), relu(), pool(), conv(64, 192, 5, padding=2), relu(), pool(),
            conv(192, 384, 3, padding=1), relu(), conv(384, 256, 3, padding=1), relu(),
            conv(256, 256, 3, padding=1), relu(), pool()),
        flatten=nn.Flatten(),
        classifier=nn.Sequential(
            nn.Dropout(), nn.Linear(9216, 4096), relu(),
            nn.Dropout(), nn.Linear(4096, 4096), relu(), nn.Linear(4096, 1000)))


def mnist_conv():
    return named(conv1=nn.Conv2d(1, 32, 3, padding=1), relu1=nn.ReLU(), pool1=nn.MaxPool2d(2),
                 conv2=nn.Conv2d(32, 64, 3, padding=1), relu2=nn.ReLU(), pool2=nn.MaxPool2d(2),
                 flatten=nn.Flatten(), fc1=nn.Linear(3136, 128), relu3=nn.ReLU(),
                 fc2=nn.Linear(128, 10))


def mlp():
    return named(fc1=nn.Linear(784, 256), relu=nn.ReLU(), fc2=nn.Linear(256, 10))
