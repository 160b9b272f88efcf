#!/usr/bin/env python3
"""Writes gguf/models/NAME.gguf and NAME.json: tiny language models as llama.cpp's own converter
writes them, and the logits of transformers for the same weights.

    pip install torch==2.13.0 transformers safetensors
    python tests/reference/make_gguf_models.py LLAMA_CPP [NAME ...]

LLAMA_CPP is a folder of llama.cpp's source, with the package `conversion` of its
convert_hf_to_gguf.py. Two files of "llama"
are quantized by the `gguf` package, and their logits are of the numbers that it dequantizes.
"""
import json
import pathlib
import sys
import tempfile

import numpy as np
import torch
import transformers
from safetensors.torch import save_file

import formula

LLAMA_CPP = pathlib.Path(sys.argv[1])
sys.path[:0] = [str(LLAMA_CPP), str(LLAMA_CPP / "gguf-py")]  # the package that the converter was written for
import conversion  # noqa: E402
import gguf  # noqa: E402

VOCABULARY, ROWS, LENGTH = 48, 2, 12
OUTPUT = pathlib.Path(__file__).parent / "gguf" / "models"
BASE = {
    "vocab_size": VOCABULARY, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8,
    "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "hidden_act": "silu",
    "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": False,
}
GEMMA = {key: value for key, value in BASE.items() if key != "hidden_act"} | {
    "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True,
    "query_pre_attn_scalar": 8, "sliding_window": 5,
}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}
WIDE = BASE | {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4,
               "num_key_value_heads": 2}
CASES = {
    "llama": ("llama", BASE),
    "llama_tied": ("llama", BASE | {"tie_word_embeddings": True, "num_key_value_heads": 2}),
    "llama_llama3": ("llama", BASE | {"rope_theta": 500.0, "rope_scaling": LLAMA3}),
    "llama_linear": ("llama", BASE | {"rope_scaling": {"rope_type": "linear", "factor": 2.5}}),
    "llama_q8_0": ("llama", WIDE | {"tie_word_embeddings": True}),
    "llama_mixed": ("llama", WIDE),
    "mistral": ("mistral", BASE | {"sliding_window": None, "rope_theta": 1000.0}),
    "mixtral": ("mixtral", BASE | {
        "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None}),
    "qwen2": ("qwen2", BASE | {"rope_theta": 1000.0}),
    "qwen3": ("qwen3", BASE | {"tie_word_embeddings": True}),
    "gemma2": ("gemma2", GEMMA | {
        "attn_logit_softcapping": 3.0, "final_logit_softcapping": 4.0}),
    "gemma3": ("gemma3_text", GEMMA | {
        "num_hidden_layers": 6, "sliding_window_pattern": 6, "rope_theta": 1e6,
        "rope_local_base_freq": 10000.0}),
    "phi3": ("phi3", BASE | {"sliding_window": 5, "pad_token_id": 0,
                             "original_max_position_embeddings": 64}),
    "olmo2": ("olmo2", BASE | {"num_key_value_heads": 2, "rope_theta": 5000.0}),
    "smollm3": ("smollm3", BASE | {
        "num_hidden_layers": 4, "no_rope_layer_interval": 4, "pad_token_id": 0, "tie_word_embeddings": True}),
    "gpt2": ("gpt2", {
        "vocab_size": VOCABULARY, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64, "n_ctx": 64,
        "activation_function": "gelu_new", "bos_token_id": 1, "eos_token_id": 2}),
    "gpt_neox": ("gpt_neox", {
        "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 24,
        "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 64,
        "hidden_act": "gelu", "bos_token_id": 1, "eos_token_id": 2, "rotary_pct": 0.25,
        "rotary_emb_base": 10000, "use_parallel_residual": True}),
}
# Types of tensors of quantized files, by a part of their names; None: as they are.
TYPES = {
    "llama_q8_0": [("norm", None), ("", "Q8_0")],
    "llama_mixed": [("norm", None), ("token_embd", "Q8_0"), ("output", "F16"), ("attn_v", "Q5_1"),
                    ("ffn_down", "Q4_1"), ("attn_q", "BF16"), ("", "Q4_0")],
}


def set_vocab(model):
    """In place of the converter's: a vocabulary of single bytes, and three special tokens."""
    tokens = ["<unk>", "<s>", "</s>"] + [chr(ord("A") + i) for i in range(VOCABULARY - 4)] + ["AB"]
    model.gguf_writer.add_tokenizer_model("gpt2")
    model.gguf_writer.add_tokenizer_pre("gpt-2")
    model.gguf_writer.add_token_list(tokens)
    model.gguf_writer.add_token_types([2, 3, 3] + [1] * (VOCABULARY - 3))
    model.gguf_writer.add_token_merges(["A B"])
    model.gguf_writer.add_bos_token_id(1)
    model.gguf_writer.add_eos_token_id(2)


def convert(folder, options, out):
    architecture = conversion.ModelBase.load_hparams(folder, False)["architectures"][0]
    kind = conversion.get_model_class(architecture)
    kind.set_vocab = set_vocab
    # Gemma 3's converter cuts the embeddings to the tokens of its tokenizer.
    (folder / "tokenizer.json").write_text(json.dumps(
        {"model": {"vocab": {str(i): i for i in range(VOCABULARY)}}, "added_tokens": []}))
    with torch.inference_mode():
        writer = kind(folder, gguf.LlamaFileType.ALL_F32, out)
        # The converter wants keys that published files have and transformers 5 does not write.
        writer.hparams = options | writer.hparams
        writer.write()


def quantize(source, out, types):
    """Copies a file, with its matrices in other types."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(out, "llama")
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        if field.types[0] == gguf.GGUFValueType.ARRAY:
            writer.add_array(field.name, field.contents())
        else:
            writer.add_key_value(field.name, field.contents(), field.types[0])
    numbers = {}
    for tensor in reader.tensors:
        name = next(kind for part, kind in types if part in tensor.name)
        data = np.array(tensor.data, dtype=np.float32)
        if name is None:
            writer.add_tensor(tensor.name, data)
            numbers[tensor.name] = data
            continue
        kind = gguf.GGMLQuantizationType[name]
        packed = gguf.quantize(data, kind)
        writer.add_tensor(tensor.name, packed, raw_dtype=kind)
        numbers[tensor.name] = gguf.dequantize(packed, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return numbers


def unpermuted(rows, heads):
    """Undoes the converter's order of the rows of queries and keys."""
    return rows.reshape(heads, rows.shape[0] // heads // 2, 2, -1).swapaxes(1, 2).reshape(rows.shape)


def published(numbers, options):
    names = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head",
             "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
             "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
             "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
             "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
    heads = {"attn_q": options["num_attention_heads"], "attn_k": options["num_key_value_heads"]}
    tensors = {}
    for name, values in numbers.items():
        *layer, module, _ = name.split(".")
        if module in heads:
            values = unpermuted(values, heads[module])
        before = f"model.layers.{layer[1]}." if layer else ""
        tensors[f"{before}{names[module]}.weight"] = torch.from_numpy(
            np.ascontiguousarray(values, dtype=np.float32))
    return tensors


def logits_of(folder, tokens):
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        return model(input_ids=tokens).logits


def make(name, scratch):
    model_type, options = CASES[name]
    folder = scratch / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": model_type} | options))
    config = transformers.AutoConfig.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_config(config)
    tensors = {}
    for key, tensor in model.state_dict().items():
        if config.tie_word_embeddings and key.startswith(("lm_head", "embed_out")):
            continue
        is_matrix = tensor.ndim > 1
        shift = 1.0 if not is_matrix and key.endswith("weight") else 0.0
        values = formula.uniform(formula.stream_of(key), list(tensor.shape), 0.5 if is_matrix else 0.3,
                                 shift)
        tensors[key] = torch.from_numpy(values.astype(np.float32))
    model.load_state_dict(tensors, strict=False)
    model.save_pretrained(folder)
    out = OUTPUT / f"{name}.gguf"
    if name in TYPES:
        convert(folder, options, scratch / "whole.gguf")
        numbers = quantize(scratch / "whole.gguf", out, TYPES[name])
        save_file(published(numbers, options), folder / "model.safetensors", metadata={"format": "pt"})
    else:
        convert(folder, options, out)
    tokens = torch.from_numpy(formula.integers(1000, [ROWS, LENGTH], VOCABULARY))
    logits = logits_of(folder, tokens)
    result = {"made_by": f"llama.cpp, gguf, transformers {transformers.__version__}",
              "tokens": tokens.tolist(),
              "logits": [float(f"{value:.7g}") for value in logits[:, :, ::4].flatten().tolist()]}
    (OUTPUT / f"{name}.json").write_text(json.dumps(result) + "\n", encoding="utf-8")


def main():
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    OUTPUT.mkdir(exist_ok=True)
    for name in sys.argv[2:] or CASES:
        with tempfile.TemporaryDirectory() as scratch:
            make(name, pathlib.Path(scratch))
        print(name, (OUTPUT / f"{name}.gguf").stat().st_size, flush=True)


if __name__ == "__main__":
    main()
