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
    """Rotary positions as a product of complex numbers: halves are real and imaginary parts."""
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


ADAMW = {"name": "adamw", "lr": 1e-3, "betas": [0.9, 0.99], "eps": 1e-8, "weight_decay": 0.1,
         "weight_decay_on": "rank >= 2"}


def tokens(rows, length, vocabulary):
    return {"kind": "tokens", "input": [length], "classes": vocabulary, "rows": rows}


def next_token(task):
    """What to predict is the token that follows."""
    return lambda b: token_batch(b, task["rows"], task["input"][0], task["classes"])


def language_model(build, task, weft, scale=0.2):
    return {"build": build, "matrix_scale": lambda shape: scale, "batch": next_token(task),
            "clip": None, "optimizer": ADAMW, "task": task, "weft": weft, "steps": 20}


LLAMA = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "rope_theta": 10000.0,
         "rms_norm_eps": 1e-5}

SPECS = {
    "llama": language_model(lambda: Llama(LLAMA, 65), tokens(2, 32, 65),
                            {"model": "llama", "config": LLAMA}),
}
