#!/usr/bin/env python3
"""Writes families/NAME.json: tiny language models of published families, as Hugging Face has them.

    pip install torch==2.13.0 transformers safetensors
    python tests/reference/make_families.py [NAME ...]

transformers makes the config.json and the list of tensors, loads the weights of the formula by
their published names, and computes logits, training steps and greedy continuations. See README.md.
"""
import json
import pathlib
import sys
import tempfile

import numpy as np
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import formula

VOCABULARY, WIDTH, HEADS, KEY_HEADS, HEAD_DIM = 96, 32, 4, 2, 8
ROWS, LENGTH, NEW_TOKENS = 2, 12, 32
LEARNING_RATE, STEPS = 0.05, 2
FIRST_TOKEN = 3  # the tokens before it pad, begin and end
PROMPT_LENGTHS = [5, 12, 3, 8]
CANDIDATES = 64  # prompts of each length
LEAST_GAP = 0.003  # between the best and the second logit of a greedy step
LEAST_DISTINCT = 5  # tokens of a continuation
OUTPUT = pathlib.Path(__file__).parent / "families"

BASE = {
    "vocab_size": VOCABULARY, "hidden_size": WIDTH, "intermediate_size": 48,
    "num_hidden_layers": 2, "num_attention_heads": HEADS, "num_key_value_heads": KEY_HEADS,
    "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "hidden_act": "silu",
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "tie_word_embeddings": False,
}
GEMMA = {key: value for key, value in BASE.items() if key != "hidden_act"} | {
    "head_dim": 8, "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True,
    "query_pre_attn_scalar": 12, "sliding_window": 5,
}
NEOX = {
    "vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": HEADS, "max_position_embeddings": 64, "hidden_act": "gelu",
    "bos_token_id": 0, "eos_token_id": 2, "rotary_pct": 0.25, "rotary_emb_base": 10000,
}
GPT2 = {
    "vocab_size": VOCABULARY, "n_embd": WIDTH, "n_layer": 2, "n_head": HEADS, "n_positions": 64,
    "activation_function": "gelu_new", "bos_token_id": 1, "eos_token_id": 2,
    "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
LONG = {"short_factor": [1.0, 1.1, 1.25, 1.5], "long_factor": [1.0, 2.0, 3.5, 6.0]}

# Sequences of longrope are all below or all above the original length, as a plan of weft has one set
# of frequencies.
# NAME: (model_type, config in the keys of published files, which transformers 4 wrote)
CASES = {
    "llama": ("llama", BASE),
    "llama_switches": ("llama", BASE | {
        "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True, "head_dim": 10,
        "num_key_value_heads": HEADS, "hidden_act": "gelu", "rope_theta": 500.0}),
    "llama_linear": ("llama", BASE | {"rope_scaling": {"type": "linear", "factor": 2.5}}),
    "llama_dynamic_below": ("llama", BASE | {"rope_scaling": {"type": "dynamic", "factor": 2.0}}),
    "llama_dynamic_above": ("llama", BASE | {
        "rope_scaling": {"type": "dynamic", "factor": 8.0}, "max_position_embeddings": 8}),
    "llama_yarn": ("llama", BASE | {"rope_scaling": YARN}),
    "llama_yarn_options": ("llama", BASE | {"rope_scaling": YARN | {
        "beta_fast": 16.0, "beta_slow": 0.5, "attention_factor": 0.8, "truncate": False}}),
    "llama_yarn_mscale": ("llama", BASE | {"rope_scaling": YARN | {
        "mscale": 1.2, "mscale_all_dim": 0.7}}),
    "llama_llama3": ("llama", BASE | {"rope_theta": 500.0, "rope_scaling": LLAMA3}),
    "llama_longrope": ("llama", BASE | {"rope_scaling": LONG | {
        "rope_type": "longrope", "factor": 4.0, "original_max_position_embeddings": 2}}),
    "mistral": ("mistral", BASE | {"sliding_window": 5, "rope_theta": 1000.0}),
    "mistral_full": ("mistral", BASE | {"sliding_window": None, "head_dim": 16}),
    "mixtral": ("mixtral", BASE | {
        "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None}),
    "qwen2": ("qwen2", BASE | {"sliding_window": 5, "use_sliding_window": False}),
    "qwen2_window": ("qwen2", BASE | {
        "num_hidden_layers": 3, "sliding_window": 5, "use_sliding_window": True,
        "max_window_layers": 1, "tie_word_embeddings": True, "rope_theta": 1000.0}),
    "qwen3": ("qwen3", BASE | {"head_dim": 16, "tie_word_embeddings": True}),
    "qwen3_yarn": ("qwen3", BASE | {
        "head_dim": 8, "attention_bias": True, "rope_scaling": YARN, "rope_theta": 1000.0}),
    "gemma2": ("gemma2", GEMMA | {
        "attn_logit_softcapping": 3.0, "final_logit_softcapping": 4.0}),
    "gemma3": ("gemma3_text", GEMMA | {
        "num_hidden_layers": 4, "sliding_window_pattern": 3, "rope_theta": 5000.0,
        "rope_local_base_freq": 100.0}),
    "gemma3_linear": ("gemma3_text", GEMMA | {
        "num_hidden_layers": 2, "sliding_window_pattern": 2, "rope_theta": 5000.0,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0}}),
    "phi3": ("phi3", BASE | {"sliding_window": 5}),
    "phi3_longrope_below": ("phi3", BASE | {
        "max_position_embeddings": 256, "original_max_position_embeddings": 64,
        "rope_scaling": LONG | {"type": "longrope"}}),
    "phi3_longrope_above": ("phi3", BASE | {
        "original_max_position_embeddings": 2,
        "rope_scaling": LONG | {"type": "longrope", "attention_factor": 1.2}}),
    "phi3_partial": ("phi3", BASE | {
        "max_position_embeddings": 128, "original_max_position_embeddings": 64,
        "partial_rotary_factor": 0.75,
        "rope_scaling": {"type": "longrope", "short_factor": [1.0, 1.1, 1.5],
                         "long_factor": [1.0, 2.0, 5.0]}, "tie_word_embeddings": True}),
    "olmo2": ("olmo2", BASE | {"rope_theta": 5000.0}),
    "smollm3": ("smollm3", BASE | {
        "num_hidden_layers": 4, "no_rope_layer_interval": 2, "tie_word_embeddings": True}),
    "gpt2": ("gpt2", GPT2),
    "gpt_neox": ("gpt_neox", NEOX | {"use_parallel_residual": True}),
    "gpt_neox_sequential": ("gpt_neox", NEOX | {
        "use_parallel_residual": False, "attention_bias": False, "tie_word_embeddings": True}),
}


def config_of(model_type, options, folder):
    """Reads the options as a published folder's config.json."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": model_type} | options))
    return transformers.AutoConfig.from_pretrained(folder)


def filled(model_type, tied, name, shape):
    """Returns shape, scale and shift of a published tensor; its stream is that of its name."""
    if len(shape) > 1:  # a tied embedding is small, or each token would predict itself
        is_embedding = any(part in name for part in ("embed", "wte", "lm_head"))
        scale = (0.3 if tied else 0.8) if is_embedding else 0.5
        return {"name": name, "shape": shape, "scale": scale, "shift": 0.0}
    is_norm_weight = name.endswith("weight")
    shift = 1.0 if is_norm_weight else 0.0
    return {"name": name, "shape": shape, "scale": 0.5 if is_norm_weight else 0.3, "shift": shift}


def published(folder):
    """Returns names and shapes of the tensors of a saved folder, as their file lists them."""
    with safe_open(folder / "model.safetensors", "pt") as file:
        return [(name, file.get_slice(name).get_shape()) for name in file.keys()]


def load(folder):
    # Scaled rotary positions keep a state, so every computation loads its own model.
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager")
    model.generation_config = transformers.GenerationConfig(do_sample=False, pad_token_id=0)
    return model.eval()


def tokens_of(stream, shape):
    tokens = formula.integers(stream, shape, VOCABULARY - FIRST_TOKEN) + FIRST_TOKEN
    return torch.from_numpy(tokens)


def rounded(values):
    return [float(f"{value:.7g}") for value in values]


def logits_of(folder, tokens):
    with torch.no_grad():
        return load(folder)(input_ids=tokens).logits


def sample(logits):
    """Returns the logits of v where v % 4 == t % 4, t the position: rows, then t, then v."""
    return rounded(logits[row, t, v].item() for row in range(ROWS) for t in range(LENGTH)
                   for v in range(t % 4, VOCABULARY, 4))


def sgd_losses(model, steps):
    """Takes steps of SGD on what trains; returns the loss before each and after all."""
    losses, table = [], tokens_of(1000, [ROWS, LENGTH + 1])
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=LEARNING_RATE)
    for step in range(steps + 1):
        logits = model(input_ids=table[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), table[:, 1:].flatten())
        losses.append(loss.item())
        if step < steps:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return rounded(losses)


def train(folder, out):
    """Trains a folder's model and saves it; returns the losses."""
    model = load(folder)
    losses = sgd_losses(model, STEPS)
    model.save_pretrained(out)
    return losses


def trained_values(before, after):
    """Per tensor: the L2 norm of its change, and its first two values."""
    old, new = load_file(before / "model.safetensors"), load_file(after / "model.safetensors")
    return {name: rounded([(new[name].double() - old[name].double()).norm().item(),
                           *new[name].flatten()[:2].tolist()]) for name in sorted(new)}


def generate(folder, prompts, **options):
    """Returns the greedy continuations of prompts, padded on the left, and the least gap of each."""
    longest = max(map(len, prompts))
    ids = torch.tensor([[0] * (longest - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    found = load(folder).generate(
        input_ids=ids, attention_mask=mask, max_new_tokens=NEW_TOKENS, output_logits=True,
        return_dict_in_generate=True, **options)
    top = torch.stack(found.logits).topk(2, dim=-1).values
    return found.sequences[:, longest:].tolist(), (top[..., 0] - top[..., 1]).amin(0).tolist()


def clear_prompts(folder, slot):
    """Returns prompts of a length whose greedy steps are clear and which do not only repeat."""
    prompts = tokens_of(5000 + slot, [CANDIDATES, PROMPT_LENGTHS[slot]]).tolist()
    rows, gaps = generate(folder, prompts)
    return [prompt for prompt, row, gap in zip(prompts, rows, gaps)
             if gap >= LEAST_GAP and len(set(row)) >= LEAST_DISTINCT]


def continuations(folder):
    """Takes the first prompts that are clear alone, together and without a cache."""
    slots = [clear_prompts(folder, slot) for slot in range(len(PROMPT_LENGTHS))]
    for prompts in zip(*slots):
        together, gaps = generate(folder, prompts)
        alone, uncached = [], []
        for prompt in prompts:
            for rows, options in ((alone, {}), (uncached, {"use_cache": False})):
                (row,), (gap,) = generate(folder, [prompt], **options)
                rows.append(row)
                gaps.append(gap)
        if min(gaps) >= LEAST_GAP:
            return {"prompts": list(prompts), "together": together, "alone": alone,
                    "alone_without_cache": uncached, "least_gap": rounded([min(gaps)])[0]}
    raise SystemExit(f"{folder}: no prompts have clear steps")


def nudged(folder, tensors):
    """Writes weights that are off by about one float32 rounding; says how far logits move."""
    folder.mkdir(exist_ok=True)
    for name in tensors:
        draw = formula.uniform(formula.stream_of(name) ^ 1, tensors[name].shape)
        moved = tensors[name].double().numpy() * (1 + 2.0**-23 * draw)
        tensors[name] = torch.from_numpy(moved.astype(np.float32))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def make(name, scratch):
    model_type, options = CASES[name]
    config = config_of(model_type, options, scratch / "published")
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(scratch / "saved")
    rows = [filled(model_type, config.tie_word_embeddings, *tensor) for tensor in published(scratch / "saved")]
    tensors = {row["name"]: torch.from_numpy(formula.uniform(
        formula.stream_of(row["name"]), row["shape"], row["scale"], row["shift"]).astype(
            np.float32)) for row in rows}
    for folder in ("published", "saved"):
        save_file(tensors, scratch / folder / "model.safetensors", metadata={"format": "pt"})

    tokens = tokens_of(1000, [ROWS, LENGTH + 1])[:, :-1]
    logits = logits_of(scratch / "saved", tokens)
    older = logits_of(scratch / "published", tokens)
    assert torch.equal(logits, older), f"{name}: the two forms of config.json differ"
    losses = train(scratch / "saved", scratch / "trained")
    text = (scratch / "saved" / "config.json").read_text()
    result = {
        "made_by": f"transformers {transformers.__version__}, PyTorch {torch.__version__}",
        "config": json.loads(text),
        "published_config": {"model_type": model_type} | options,
        "tensors": rows,
        "tokens": tokens_of(1000, [ROWS, LENGTH + 1]).tolist(),
        "logits": sample(logits),
        "learning_rate": LEARNING_RATE,
        "losses": losses,
        "trained": trained_values(scratch / "saved", scratch / "trained"),
        "generation": continuations(scratch / "saved"),
    }
    (scratch / "nudged").mkdir()
    (scratch / "nudged" / "config.json").write_text(text)
    nudged(scratch / "nudged", tensors)
    off = (logits_of(scratch / "nudged", tokens) - logits).abs().max().item()
    again = train(scratch / "nudged", scratch / "trained_nudged")
    result["nudged_off"] = {"logits": rounded([off])[0], "losses": rounded(
        [max(abs(a - b) for a, b in zip(losses, again))])[0]}
    return result


def written(value, key=""):
    """Returns JSON with one line for each tensor and each entry of the outermost object."""
    lines = []
    for key, entry in value.items():
        if key in ("tensors", "trained"):
            items = [json.dumps(row) for row in entry] if key == "tensors" else [
                f"{json.dumps(name)}: {json.dumps(row)}" for name, row in entry.items()]
            opening, closing = "[]" if key == "tensors" else "{}"
            text = f"{opening}\n    " + ",\n    ".join(items) + f"\n  {closing}"
        else:
            text = json.dumps(entry)
        lines.append(f"  {json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main():
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    OUTPUT.mkdir(exist_ok=True)
    for name in sys.argv[1:] or CASES:
        with tempfile.TemporaryDirectory() as scratch:
            result = make(name, pathlib.Path(scratch))
        (OUTPUT / f"{name}.json").write_text(written(result), encoding="utf-8")
        found = result["generation"]
        print(name, result["losses"], "nudged", result["nudged_off"], "gap", found["least_gap"],
              "together == alone:", found["together"] == found["alone"],
              "cache:", found["alone"] == found["alone_without_cache"], flush=True)


if __name__ == "__main__":
    main()
