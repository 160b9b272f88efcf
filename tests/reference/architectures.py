"""Small forms of the zoo's larger models, from their published equations (see README.md)."""
import torch
import torch.nn as nn
import torch.nn.functional as F

from models import Gpt, image_batch, integers, relu_scale, token_batch


class RmsNorm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        return self.weight * x / (x.square().mean(-1, keepdim=True) + self.eps).sqrt()


def turn(x, theta):
    """Applies rotary positions as complex products; the halves are real and imaginary parts."""
    length, half = x.shape[-2], x.shape[-1] // 2
    rate = theta ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = torch.arange(length, dtype=torch.float64)[:, None] * rate
    z = torch.complex(x[..., :half].double(), x[..., half:].double())
    z = z * torch.polar(torch.ones_like(angle), angle)
    return torch.cat([z.real, z.imag], -1).to(x.dtype)


class LlamaAttention(nn.Module):
    def __init__(self, width, heads, groups, theta):
        super().__init__()
        self.heads, self.groups, self.theta = heads, groups, theta
        each = width // heads
        self.q_proj = nn.Linear(width, heads * each, bias=False)
        self.k_proj = nn.Linear(width, groups * each, bias=False)
        self.v_proj = nn.Linear(width, groups * each, bias=False)
        self.o_proj = nn.Linear(heads * each, width, bias=False)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (y.view(batch, length, count, -1).transpose(1, 2)
                   for y, count in ((self.q_proj(x), self.heads), (self.k_proj(x), self.groups),
                                    (self.v_proj(x), self.groups)))
        q, k = turn(q, self.theta), turn(k, self.theta)
        k, v = (y.repeat_interleave(self.heads // self.groups, 1) for y in (k, v))
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        y = scores.masked_fill(future, float("-inf")).softmax(-1) @ v
        return self.o_proj(y.transpose(1, 2).reshape(batch, length, width))


class LlamaMlp(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.gate_proj = nn.Linear(width, hidden, bias=False)
        self.up_proj = nn.Linear(width, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class LlamaLayer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.self_attn = LlamaAttention(c["hidden_size"], c["num_attention_heads"],
                                        c["num_key_value_heads"], c["rope_theta"])
        self.mlp = LlamaMlp(c["hidden_size"], c["intermediate_size"])
        self.input_layernorm = RmsNorm(c["hidden_size"], c["rms_norm_eps"])
        self.post_attention_layernorm = RmsNorm(c["hidden_size"], c["rms_norm_eps"])

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    def __init__(self, c, vocabulary):
        super().__init__()
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(vocabulary, c["hidden_size"])
        self.model.layers = nn.ModuleList([LlamaLayer(c) for _ in range(c["num_hidden_layers"])])
        self.model.norm = RmsNorm(c["hidden_size"], c["rms_norm_eps"])
        self.lm_head = nn.Linear(c["hidden_size"], vocabulary, bias=False)

    def forward(self, ids):
        x = self.model.embed_tokens(ids)
        for layer in self.model.layers:
            x = layer(x)
        return self.lm_head(self.model.norm(x)).flatten(0, 1)


class ResNetBlock(nn.Module):
    """Convolutions 3x3, 3x3, or as bottleneck 1x1, strided 3x3, 1x1 to four times the width."""

    def __init__(self, inputs, width, stride, bottleneck):
        super().__init__()
        outputs = 4 * width if bottleneck else width
        shapes = [(inputs, width, 3, stride), (width, outputs, 3, 1)]
        if bottleneck:
            shapes = [(inputs, width, 1, 1), (width, width, 3, stride), (width, outputs, 1, 1)]
        for i, (a, b, size, step) in enumerate(shapes, 1):
            self.add_module(f"conv{i}", nn.Conv2d(a, b, size, step, size // 2, bias=False))
            self.add_module(f"bn{i}", nn.BatchNorm2d(b))
        self.count, self.downsample = len(shapes), None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False),
                                            nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = x
        for i in range(1, self.count + 1):
            y = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(y))
            if i < self.count:
                y = F.relu(y)
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    """ResNet in its ImageNet form, with torchvision's names."""

    def __init__(self, blocks, bottleneck, width):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width)
        inputs = width
        for i, count in enumerate(blocks):
            stage = []
            for k in range(count):
                stride = 2 if i > 0 and k == 0 else 1
                stage.append(ResNetBlock(inputs, width << i, stride, bottleneck))
                inputs = (4 if bottleneck else 1) * (width << i)
            self.add_module(f"layer{i + 1}", nn.Sequential(*stage))
        self.fc = nn.Linear(inputs, 10)

    def forward(self, images):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(images))), 3, 2, 1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


class AlexNet(nn.Module):
    """One-tower AlexNet; torchvision's names come from the positions in the two sequences."""

    def __init__(self, hidden):
        super().__init__()
        layers, inputs = [], 3
        for outputs, size, stride, padding, pooled in (
                (64, 11, 4, 2, True), (192, 5, 1, 2, True), (384, 3, 1, 1, False),
                (256, 3, 1, 1, False), (256, 3, 1, 1, True)):
            layers += [nn.Conv2d(inputs, outputs, size, stride, padding), nn.ReLU()]
            layers += [nn.MaxPool2d(3, 2)] if pooled else []
            inputs = outputs
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Dropout(0), nn.Linear(256 * 36, hidden), nn.ReLU(),
            nn.Dropout(0), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 10))

    def forward(self, images):
        return self.classifier(F.adaptive_avg_pool2d(self.features(images), 6).flatten(1))


class RecurrentLm(nn.Module):
    def __init__(self, cell, vocabulary, embedding, hidden, layers):
        super().__init__()
        self.encoder = nn.Embedding(vocabulary, embedding)
        self.rnn = cell(embedding, hidden, layers, batch_first=True)
        self.decoder = nn.Linear(hidden, vocabulary)

    def forward(self, ids):
        return self.decoder(self.rnn(self.encoder(ids))[0]).flatten(0, 1)


class Tagger(nn.Module):
    """A bidirectional recurrent tagger as a list of layers."""

    def __init__(self, cell, vocabulary):
        super().__init__()
        self.add_module("0", nn.Embedding(vocabulary, 12))
        self.add_module("1", cell(12, 16, 2, bidirectional=True, batch_first=True))
        self.add_module("2", nn.Linear(32, vocabulary))

    def forward(self, ids):
        embed, rnn, head = self.children()
        return head(rnn(embed(ids))[0]).flatten(0, 1)


def tagger_layers(cell, vocabulary):
    return [{"name": "embedding",
             "options": {"num_embeddings": vocabulary, "embedding_dim": 12}},
            {"name": cell, "options": {"hidden_size": 16, "num_layers": 2, "bidirectional": True}},
            {"name": "linear", "options": {"out_features": vocabulary}}]


class BertLayer(nn.Module):
    def __init__(self, c):
        super().__init__()
        width, self.heads = c["hidden_size"], c["num_attention_heads"]
        self.attention, self.attention.self = nn.Module(), nn.Module()
        for name in ("query", "key", "value"):
            self.attention.self.add_module(name, nn.Linear(width, width))
        self.attention.output = nn.Module()
        self.attention.output.dense = nn.Linear(width, width)
        self.attention.output.LayerNorm = nn.LayerNorm(width, c["layer_norm_eps"])
        self.intermediate, self.output = nn.Module(), nn.Module()
        self.intermediate.dense = nn.Linear(width, c["intermediate_size"])
        self.output.dense = nn.Linear(c["intermediate_size"], width)
        self.output.LayerNorm = nn.LayerNorm(width, c["layer_norm_eps"])

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (layer(x).view(batch, length, self.heads, -1).transpose(1, 2)
                   for layer in self.attention.self.children())
        p = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1)
        y = (p @ v).transpose(1, 2).reshape(batch, length, width)
        x = self.attention.output.LayerNorm(self.attention.output.dense(y) + x)
        y = self.output.dense(F.gelu(self.intermediate.dense(x)))
        return self.output.LayerNorm(y + x)


class Bert(nn.Module):
    """Predicts a token at each position if `labels` is 0, else a label from the first position."""

    def __init__(self, c, vocabulary, longest, labels=0):
        super().__init__()
        width, eps = c["hidden_size"], c["layer_norm_eps"]
        self.bert, self.bert.embeddings = nn.Module(), nn.Module()
        words = nn.Embedding(vocabulary, width)
        self.bert.embeddings.word_embeddings = words
        self.bert.embeddings.position_embeddings = nn.Embedding(longest, width)
        self.bert.embeddings.token_type_embeddings = nn.Embedding(2, width)
        self.bert.embeddings.LayerNorm = nn.LayerNorm(width, eps)
        self.bert.encoder = nn.Module()
        self.bert.encoder.layer = nn.Sequential(
            *[BertLayer(c) for _ in range(c["num_hidden_layers"])])
        self.labels = labels
        if labels:
            self.bert.pooler = nn.Module()
            self.bert.pooler.dense = nn.Linear(width, width)
            self.classifier = nn.Linear(width, labels)
            return
        self.cls, self.cls.predictions = nn.Module(), nn.Module()
        self.cls.predictions.bias = nn.Parameter(torch.zeros(vocabulary))
        self.cls.predictions.transform = nn.Module()
        self.cls.predictions.transform.dense = nn.Linear(width, width)
        self.cls.predictions.transform.LayerNorm = nn.LayerNorm(width, eps)

    def forward(self, ids):
        e = self.bert.embeddings
        x = e.word_embeddings(ids) + e.position_embeddings.weight[:ids.shape[1]]
        x = e.LayerNorm(x + e.token_type_embeddings(torch.zeros_like(ids)))
        x = self.bert.encoder.layer(x)
        if self.labels:
            return self.classifier(torch.tanh(self.bert.pooler.dense(x[:, 0])))
        t = self.cls.predictions.transform
        x = t.LayerNorm(F.gelu(t.dense(x)))
        return F.linear(x, e.word_embeddings.weight, self.cls.predictions.bias).flatten(0, 1)


class Gpt2(Gpt):
    """GPT with biases and the tanh form of GELU."""

    def __init__(self, layers, heads, width, context, vocabulary):
        super().__init__(layers, heads, width, context, vocabulary)
        for block in self.h:
            block.ln_1, block.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
            block.attn.c_attn = nn.Linear(width, 3 * width)
            block.attn.c_proj = nn.Linear(width, width)
            block.c_fc, block.c_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            block.forward = lambda x, block=block: self.block(block, x)
        self.ln_f = nn.LayerNorm(width)

    @staticmethod
    def block(block, x):
        x = x + block.attn(block.ln_1(x))
        return x + block.c_proj(F.gelu(block.c_fc(block.ln_2(x)), approximate="tanh"))


ADAMW = {"name": "adamw", "lr": 1e-3, "betas": [0.9, 0.99], "eps": 1e-8, "weight_decay": 0.1,
         "weight_decay_on": "rank >= 2"}


def tokens(rows, length, vocabulary):
    return {"kind": "tokens", "input": [length], "classes": vocabulary, "rows": rows}


def next_token(task):
    """Returns batches whose labels are the next tokens."""
    return lambda b: token_batch(b, task["rows"], task["input"][0], task["classes"])


def masked_tokens(task):
    """Returns batches where 15 % of positions are the mask (the last token) and predicted."""
    shape, mask = [task["rows"], task["input"][0]], task["classes"] - 1

    def make(b):
        ids, _ = token_batch(b, *shape, mask)
        chosen = integers(2000 + b, shape, 100) < 15
        return ids.masked_fill(chosen, mask), ids.masked_fill(~chosen, -100).flatten()
    return make


def whole_samples(task):
    def make(b):
        ids, _ = token_batch(b, task["rows"], task["input"][0], task["vocabulary"])
        return ids, integers(2000 + b, [task["rows"]], task["classes"])
    return make


def language_model(build, task, weft, batch=next_token, scale=0.2, lr=1e-3):
    return {"build": build, "matrix_scale": lambda shape: scale, "batch": batch(task),
            "clip": None, "optimizer": ADAMW | {"lr": lr}, "task": task, "weft": weft, "steps": 20}


def recurrent(build, task, weft):
    return language_model(build, task, weft, scale=0.5, lr=1e-2)


def last_gain(name):
    """Starts blocks near the identity; else a deep net at small batches is ill-conditioned."""
    return 0.2 if name.endswith("bn3.weight") else None


def image_model(build, rows, side, weft, lr):
    task = {"kind": "images", "input": [3, side, side], "classes": 10, "rows": rows}
    return {"build": build, "matrix_scale": relu_scale, "clip": None, "task": task, "weft": weft,
            "batch": image_batch([rows, 3, side, side]), "steps": 20, "gain": last_gain,
            "optimizer": {"name": "sgd", "lr": lr, "momentum": 0.9, "weight_decay": 1e-4}}


LLAMA = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "rope_theta": 10000.0,
         "rms_norm_eps": 1e-5}

RNN = {"hidden_size": 32, "embedding_size": 24, "num_hidden_layers": 2}
BERT = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 96, "layer_norm_eps": 1e-12, "hidden_dropout_prob": 0}
GPT2 = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 65,
        "max_position_embeddings": 32}
SENTENCES = tokens(4, 16, 3) | {"vocabulary": 40, "labels": "samples"}

SPECS = {
    "gpt2": language_model(lambda: Gpt2(2, 4, 64, 32, 65), tokens(2, 32, 65),
                           {"model": "gpt2", "config": GPT2}),
    "lstm": recurrent(lambda: RecurrentLm(nn.LSTM, 40, 24, 32, 2), tokens(3, 9, 40),
                      {"model": "lstm", "config": RNN}),
    "gru": recurrent(lambda: RecurrentLm(nn.GRU, 40, 24, 32, 2), tokens(3, 9, 40),
                     {"model": "gru", "config": RNN}),
    "lstm_both_ways": recurrent(lambda: Tagger(nn.LSTM, 20), tokens(3, 7, 20),
                                {"layers": tagger_layers("lstm", 20)}),
    "gru_both_ways": recurrent(lambda: Tagger(nn.GRU, 20), tokens(3, 7, 20),
                               {"layers": tagger_layers("gru", 20)}),
    "bert_masked": language_model(lambda: Bert(BERT, 41, 32),
                                  tokens(2, 32, 41) | {"labels": "masked"},
                                  {"model": "bert", "config": BERT}, masked_tokens),
    "bert_samples": language_model(lambda: Bert(BERT, 40, 16, 3), SENTENCES,
                                   {"model": "bert", "config": BERT}, whole_samples),
    "llama": language_model(lambda: Llama(LLAMA, 65), tokens(2, 32, 65),
                            {"model": "llama", "config": LLAMA}),
    "resnet18_narrow": image_model(lambda: ResNet([2, 2, 2, 2], False, 8), 4, 64,
                                   {"model": "resnet18", "config": {"hidden_size": 8}}, 1e-3),
    "resnet50_narrow": image_model(lambda: ResNet([3, 4, 6, 3], True, 8), 4, 64,
                                   {"model": "resnet50", "config": {"hidden_size": 8}}, 1e-3),
    "resnet50": image_model(lambda: ResNet([3, 4, 6, 3], True, 64), 2, 64,
                            {"model": "resnet50", "config": {}}, 1e-3),
    "alexnet_narrow": image_model(lambda: AlexNet(64), 4, 64,
                                  {"model": "alexnet",
                                   "config": {"hidden_size": 64, "dropout": 0}}, 1e-3),
    "alexnet": image_model(lambda: AlexNet(4096), 2, 80,
                           {"model": "alexnet", "config": {"dropout": 0}}, 1e-4),
}
