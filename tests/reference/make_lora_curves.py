#!/usr/bin/env python3
"""Writes lora_curves.json: PEFT trains adapters of a small Llama on Shakespeare's text, and on the
answers of a conversation with tools.

    pip install torch==2.13.0 transformers==5.24.0 jinja2==3.1.6 peft safetensors gguf
    WEFT_DATA_DIR=... python tests/reference/make_lora_curves.py

Weights and adapters are those of the formula by their names in files; `Q4_0` trains beside the
weights that the gguf package encodes in blocks and decodes again. See README.md.
"""
import json
import os
import pathlib
import tempfile

import gguf
import numpy as np
import peft
import torch
import transformers
from safetensors.torch import load_file
from transformers.models.llama import modeling_llama

import formula
import make_answers
from make_curves import NUDGED_RUNS, THREADS, WINDOW, one_row_per_item

STEPS, ROWS, LENGTH = 80, 4, 64
MARKS = (1, 5, 10, 20, 40, 79)
TOOL_STEPS, TOOL_TEMPLATE = 10, "qwen3"
OUTPUT = pathlib.Path(__file__).parent / "lora_curves.json"
TEXT = pathlib.Path(os.environ["WEFT_DATA_DIR"]) / "text" / "tinyshakespeare.txt"
CONFIG = {
    "model_type": "llama", "vocab_size": 65, "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "max_position_embeddings": LENGTH, "rms_norm_eps": 1e-5, "hidden_act": "silu",
    "rope_theta": 10000.0, "tie_word_embeddings": False,
}
ADAPTER = {"r": 8, "lora_alpha": 16, "target_modules": "all-linear"}
OPTIMIZER = {"name": "adamw", "lr": 0.01, "betas": [0.9, 0.99], "weight_decay": 0.1}
Q4_0, Q8_0 = gguf.GGMLQuantizationType.Q4_0, gguf.GGMLQuantizationType.Q8_0


class Norm(torch.nn.Module):
    """RMSNorm in the type of its input: transformers computes it in float32."""

    def __init__(self, other):
        super().__init__()
        self.weight, self.eps = other.weight, other.variance_epsilon

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps))


class Rotary(torch.nn.Module):
    """Cosines and sines of positions from float64, which transformers computes in float32."""

    def __init__(self, config):
        super().__init__()
        size = config.hidden_size // config.num_attention_heads
        self.frequencies = CONFIG["rope_theta"]**(
            -torch.arange(0, size, 2, dtype=torch.float64) / size)

    def forward(self, x, position_ids):
        angles = position_ids[..., None].double() * self.frequencies
        angles = torch.cat([angles, angles], dim=-1)
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


def exact(model):
    """Makes a model of transformers compute in the type of its weights throughout."""
    model.model.rotary_emb = Rotary(model.config)
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, modeling_llama.LlamaRMSNorm):
                setattr(module, name, Norm(child))
    return model


def row_of(name, shape):
    """Returns shape, scale and shift of a tensor; its stream is that of its name."""
    if len(shape) == 1:
        scale, shift = 0.3, 1.0
    elif "lora_B" in name:
        scale, shift = 0.0, 0.0
    else:
        scale, shift = {"lm_head.weight": 0.1, "model.embed_tokens.weight": 0.8}.get(name, 0.2), 0.0
    return {"name": name, "shape": list(shape), "scale": scale, "shift": shift}


def values_of(row):
    return formula.uniform(formula.stream_of(row["name"]), row["shape"], row["scale"],
                           row["shift"]).astype(np.float32)


def in_blocks(name, values):
    """Returns what the blocks of a matrix stand for: Q8_0 of embeddings and the head, else Q4_0."""
    if values.ndim == 1:
        return values
    kind = Q8_0 if name in ("lm_head.weight", "model.embed_tokens.weight") else Q4_0
    return gguf.quants.dequantize(gguf.quants.quantize(values, kind), kind)


def plain_model(config=CONFIG):
    config = transformers.AutoConfig.for_model(**config)
    return transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")


def build(rows, adapter, quantized, dtype, nudge=0.0, draw=0, config=CONFIG):
    """Returns PEFT's model with the weights of the formula, each moved by `nudge` times a draw."""
    model, tensors = plain_model(config), {}
    for row in rows["tensors"]:
        values = values_of(row)
        tensors[row["name"]] = in_blocks(row["name"], values) if quantized else values
    model.load_state_dict({name: torch.from_numpy(values) for name, values in tensors.items()})
    model = peft.get_peft_model(exact(model), peft.LoraConfig(task_type="CAUSAL_LM", **ADAPTER))
    peft.set_peft_model_state_dict(
        model, {row["name"]: torch.from_numpy(values_of(row)) for row in adapter})
    model = model.to(dtype)
    generator = torch.Generator().manual_seed(draw)
    with torch.no_grad():
        for parameter in model.parameters() if nudge else ():
            noise = 2 * torch.rand(parameter.shape, generator=generator, dtype=torch.float64) - 1
            parameter.copy_((parameter.double() * (1 + nudge * noise)).to(dtype))
    return model.train()


def model_rows(config=CONFIG):
    return {"tensors": [row_of(name, tensor.shape)
                        for name, tensor in sorted(plain_model(config).state_dict().items())]}


def adapter_rows():
    model = peft.get_peft_model(plain_model(), peft.LoraConfig(task_type="CAUSAL_LM", **ADAPTER))
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        tensors = load_file(pathlib.Path(folder) / "adapter_model.safetensors")
    return [row_of(name, tensor.shape) for name, tensor in sorted(tensors.items())]


def batch(ids, step):
    """Returns rows of LENGTH + 1 tokens, which follow each other in the text."""
    starts = [(step * ROWS + row) * LENGTH for row in range(ROWS)]
    return torch.stack([ids[at:at + LENGTH + 1] for at in starts])


def text_batches(ids):
    tables = [batch(ids, step) for step in range(STEPS)]
    return [(table[:, :-1], table[:, 1:]) for table in tables]


def train(model, batches, threads=THREADS):
    torch.set_num_threads(threads)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=OPTIMIZER["lr"], betas=OPTIMIZER["betas"],
                                  weight_decay=OPTIMIZER["weight_decay"])
    losses = []
    for inputs, labels in batches:
        logits = model(input_ids=inputs).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return losses


def check_equations(rows, ids):
    """Checks that exact() changes the rounding of transformers' Llama alone."""
    logits = []
    for change in (exact, lambda model: model):
        model = plain_model()
        model.load_state_dict({row["name"]: torch.from_numpy(values_of(row))
                               for row in rows["tensors"]})
        with torch.no_grad():
            logits.append(change(model)(input_ids=batch(ids, 0)[:, :-1]).logits)
    off = (logits[0] - logits[1]).abs().max().item()
    assert off < 1e-5, off


def distance(runs, exact_losses):
    """Returns, per window, the root mean square distance of all runs."""
    off = np.array(runs) - np.array(exact_losses)
    return np.sqrt((off**2).reshape(len(runs), -1, WINDOW).mean(axis=(0, 2))).tolist()


def curve(rows, adapter, ids, quantized):
    make = lambda *options: build(rows, adapter, quantized, *options)
    batches = text_batches(ids)
    f64 = train(make(torch.float64), batches)
    nudged = train(make(torch.float64, 2.0**-52), batches)
    f32 = train(make(torch.float32), batches)
    runs = [f32, train(make(torch.float32), batches, threads=1)]
    runs += [train(make(torch.float32, 2.0**-23, draw), batches) for draw in range(NUDGED_RUNS)]
    off = np.abs(np.array(f64) - np.array(nudged))
    spread = {str(mark): off[:mark + 1].max() for mark in MARKS}
    print(f"loss {f64[0]:.4f} to {f64[-1]:.4f}, nudged {spread}, f32 {distance(runs, f64)}")
    return {"f64_vs_f64_nudged": spread, "f32_distance": distance(runs, f64),
            "loss_f64": f64, "loss_f32": f32}


def tool_curve(adapter):
    """Trains on the samples of a conversation, with the tokens and masks of transformers."""
    row = {"messages": make_answers.CALLS, "tools": make_answers.TOOLS}  # in this order of keys
    tokenizer = make_answers.tokenizer_of(TOOL_TEMPLATE)
    samples = make_answers.samples(tokenizer, row, row["messages"], make_answers.ALL)
    length = max(len(sample["ids"]) for sample in samples)
    tokens = torch.zeros(len(samples), length, dtype=torch.long)
    labels = torch.full((len(samples), length), -100)
    for i, sample in enumerate(samples):
        ids, learned = torch.tensor(sample["ids"]), torch.tensor(sample["learned"]) == 1
        tokens[i, :len(ids)] = ids
        labels[i, :len(ids)][learned] = ids[learned]
    config = {**CONFIG, "vocab_size": len(tokenizer), "max_position_embeddings": length}
    rows = model_rows(config)
    run = lambda nudge: train(build(rows, adapter, False, torch.float64, nudge, config=config),
                              [(tokens[:, :-1], labels[:, 1:])] * TOOL_STEPS)
    losses, nudged = run(0.0), run(2.0**-52)
    off = np.abs(np.array(losses) - np.array(nudged)).max()
    print(f"tool calls: loss {losses[0]:.4f} to {losses[-1]:.4f}, nudged {off}")
    return {"template": TOOL_TEMPLATE, "row": json.dumps(row), "config": config, **rows,
            "f64_vs_f64_nudged": off, "loss_f64": losses}


def main():
    transformers.logging.set_verbosity_error()
    text = TEXT.read_text(encoding="ascii")
    characters = "".join(sorted(set(text)))
    ids = torch.tensor([characters.index(c) for c in text[:STEPS * ROWS * LENGTH + 1]])
    rows = model_rows()
    adapter = adapter_rows()
    check_equations(rows, ids)
    document = {
        "made_by": f"PEFT {peft.__version__}, transformers {transformers.__version__}, "
                   f"PyTorch {torch.__version__}",
        "characters": characters, "batch": [ROWS, LENGTH], "config": CONFIG,
        "adapter": ADAPTER, "optimizer": OPTIMIZER, **rows, "adapter_tensors": adapter,
        "F32": curve(rows, adapter, ids, False), "Q4_0": curve(rows, adapter, ids, True),
        "tool_calls": tool_curve(adapter),
    }
    OUTPUT.write_text(one_row_per_item(document), encoding="utf-8")


if __name__ == "__main__":
    main()
