#!/usr/bin/env python3
"""Writes lora.json: adapters of Hugging Face's PEFT on tiny nets of families/.

    pip install torch==2.13.0 transformers peft safetensors
    python tests/reference/make_lora.py

Weights and adapters are those of the formula by their names in files. PEFT trains them, and merges
what it trained. See README.md.
"""
import json
import pathlib
import tempfile

import numpy as np
import peft
import torch
import transformers
from safetensors.torch import load_file, save_file

import formula
from make_families import (CASES as FAMILIES, LEARNING_RATE, LENGTH, ROWS, config_of, filled, load,
                           published, sample, sgd_losses, tokens_of, trained_values)

STEPS = 3
OUTPUT = pathlib.Path(__file__).parent / "lora.json"
CASES = {
    "llama": ("llama", {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"]}),
    "llama_switches": ("llama_switches", {
        "r": 2, "lora_alpha": 3, "use_rslora": True, "target_modules": "all-linear"}),
    "llama_dora": ("llama", {
        "r": 4, "lora_alpha": 8, "use_dora": True, "target_modules": ["o_proj", "down_proj"]}),
    "llama_biases_dora": ("llama_switches", {
        "r": 3, "lora_alpha": 6, "use_dora": True, "target_modules": ["k_proj", "up_proj"]}),
    "gpt2": ("gpt2", {"r": 4, "lora_alpha": 4, "target_modules": ["c_attn", "mlp.c_proj"]}),
    "gpt2_dora": ("gpt2", {"r": 2, "lora_alpha": 4, "use_dora": True, "target_modules": ["c_attn"]}),
}


def write_base(name, folder):
    """Writes the folder of a family's net, with the weights of the formula."""
    model_type, options = FAMILIES[name]
    config = config_of(model_type, options, folder.parent / "published")
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    rows = [filled(model_type, config.tie_word_embeddings, *tensor) for tensor in published(folder)]
    save_file({row["name"]: torch.from_numpy(formula.uniform(
        formula.stream_of(row["name"]), row["shape"], row["scale"], row["shift"]).astype(np.float32))
        for row in rows}, folder / "model.safetensors", metadata={"format": "pt"})


def write_adapter(base, options, folder):
    """Writes an adapter's folder, with the weights of the formula; returns their rows."""
    fan_in_fan_out = base.startswith("gpt2")
    config = peft.LoraConfig(task_type="CAUSAL_LM", fan_in_fan_out=fan_in_fan_out, **options)
    model = peft.get_peft_model(load(folder.parent / "base"), config)
    model.save_pretrained(folder)
    rows, tensors = [], {}
    for name, tensor in sorted(load_file(folder / "adapter_model.safetensors").items()):
        is_magnitude = name.endswith("lora_magnitude_vector")
        row = {"name": name, "shape": list(tensor.shape), "scale": 0.2 if is_magnitude else 0.3,
               "shift": 1.5 if is_magnitude else 0.0}
        rows.append(row)
        tensors[name] = torch.from_numpy(formula.uniform(
            formula.stream_of(name), row["shape"], row["scale"], row["shift"]).astype(np.float32))
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    return rows


def make(name, scratch):
    base, options = CASES[name]
    write_base(base, scratch / "base")
    rows = write_adapter(base, options, scratch / "adapter")
    model = peft.PeftModel.from_pretrained(load(scratch / "base"), scratch / "adapter", is_trainable=True)
    losses = sgd_losses(model, STEPS)
    (scratch / "trained").mkdir()
    model.save_pretrained(scratch / "trained")
    for folder in ("adapter", "trained"):
        path = scratch / folder / "adapter_model.safetensors"
        path.rename(scratch / folder / "model.safetensors")
    merged = model.merge_and_unload()
    with torch.no_grad():
        logits = merged(input_ids=tokens_of(1000, [ROWS, LENGTH + 1])[:, :-1]).logits
    return {"base": base, "config": options, "tensors": rows, "learning_rate": LEARNING_RATE,
            "losses": losses,
            "trained": trained_values(scratch / "adapter", scratch / "trained"),
            "merged_logits": sample(logits)}


def main():
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    cases = {}
    for name in CASES:
        with tempfile.TemporaryDirectory() as scratch:
            cases[name] = make(name, pathlib.Path(scratch))
        print(name, cases[name]["losses"], flush=True)
    made_by = f"PEFT {peft.__version__}, transformers {transformers.__version__}"
    lines = [f'"made_by": {json.dumps(made_by)}'] + [
        f"{json.dumps(name)}: {json.dumps(case)}" for name, case in cases.items()]
    OUTPUT.write_text("{" + ",\n".join(lines) + "}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
