"""Measures generation with a published GPT-2 or Llama in llama.cpp, as bench/generation.cpp does in weft:

    python bench/peers/generation_llama_cpp.py models/gpt2 [BATCH [PROMPT [TOKENS [FORMAT]]]]

With FORMAT, Q8_0 or Q4_0, the matrices of layers are in blocks as those of `weft quantize models/gpt2 OUT --to FORMAT`,
which bench/generation measures; without it all weights have their own type. It needs llama-cpp-python, which builds llama.cpp for the machine, gguf and numpy. The weights are written
to a GGUF file beside the temporary files, without a tokenizer, which speed does not need. The
cache of keys and values is llama.cpp's own choice, float16.
"""

import ctypes
import json
import os
import sys
import tempfile
import time

import gguf
import llama_cpp
import numpy

defaults = ["", "1", "512", "32", ""]
folder, batch, prompt, count, blocks = (sys.argv[1:] + defaults[len(sys.argv) - 1 :])[:5]
batch, prompt, count = int(batch), int(prompt), int(count)
threads = int(os.environ.get("WEFT_THREADS", "2"))
with open(os.path.join(folder, "config.json")) as file:
    config = json.load(file)


def tensors():
    """Yields names, element types and bytes: NumPy has no bfloat16."""
    path = os.path.join(folder, "model.safetensors")
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
    data = numpy.memmap(path, numpy.uint8, "r", 8 + size)
    header.pop("__metadata__", None)
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        element = {"F32": numpy.float32, "BF16": numpy.uint16}[entry["dtype"]]
        yield name, entry["dtype"], data[begin:end].view(element).reshape(entry["shape"])


def write_gguf(path):
    gpt2 = config["model_type"] == "gpt2"
    arch = gguf.MODEL_ARCH.GPT2 if gpt2 else gguf.MODEL_ARCH.LLAMA
    layers = config["n_layer" if gpt2 else "num_hidden_layers"]
    heads = config["n_head" if gpt2 else "num_attention_heads"]
    width = config["n_embd" if gpt2 else "hidden_size"]
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[arch])
    writer.add_tokenizer_model("no_vocab")
    writer.add_vocab_size(config["vocab_size"])
    writer.add_block_count(layers)
    writer.add_head_count(heads)
    writer.add_embedding_length(width)
    if gpt2:
        writer.add_context_length(config["n_positions"])
        writer.add_feed_forward_length(4 * width)
        writer.add_layer_norm_eps(config["layer_norm_epsilon"])
    else:
        writer.add_context_length(config["max_position_embeddings"])
        writer.add_feed_forward_length(config["intermediate_size"])
        writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
        writer.add_head_count_kv(config["num_key_value_heads"])
        writer.add_rope_dimension_count(width // heads)
    names = gguf.get_tensor_name_map(arch, layers)
    for name, dtype, values in tensors():
        target = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if target is None:  # masks of old files
            continue
        if gpt2 and name.endswith(("attn.weight", "proj.weight", "fc.weight")):
            values = values.T
        values = numpy.ascontiguousarray(values)
        if blocks and target.startswith("blk.") and values.ndim == 2:
            if dtype == "BF16":
                values = (values.astype(numpy.uint32) << 16).view(numpy.float32)
            kind = gguf.GGMLQuantizationType[blocks]
            writer.add_tensor(target, gguf.quants.quantize(values, kind), raw_dtype=kind)
            continue
        if dtype == "BF16" and values.ndim == 1:  # biases and norms are float32 in llama.cpp
            values = (values.astype(numpy.uint32) << 16).view(numpy.float32)
        elif dtype == "BF16":
            bf16 = gguf.GGMLQuantizationType.BF16
            writer.add_tensor(target, values.view(numpy.uint8), raw_dtype=bf16)
            continue
        writer.add_tensor(target, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def timed(function):
    start = time.perf_counter()
    function()
    return 1000 * (time.perf_counter() - start)


with tempfile.TemporaryDirectory() as place:
    path = os.path.join(place, "model.gguf")
    write_gguf(path)
    llama_cpp.llama_backend_init()
    # Errors alone: the loader reports each tensor.
    quiet = llama_cpp.llama_log_callback(
        lambda level, text, _: level >= 4 and sys.stderr.write(text.decode())
    )
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p())
    model = llama_cpp.llama_model_load_from_file(
        path.encode(), llama_cpp.llama_model_default_params()
    )
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = batch * (prompt + count + 1)
    params.n_batch = params.n_ubatch = max(512, batch * prompt)
    params.n_seq_max = batch
    params.n_threads = params.n_threads_batch = threads
    context = llama_cpp.llama_init_from_model(model, params)
    if not context:
        raise SystemExit("llama.cpp made no context")
    memory = llama_cpp.llama_get_memory(context)
    tokens = llama_cpp.llama_batch_init(batch * prompt, 0, 1)

    def append(first, ids):
        """Continues every sequence, which has `first` tokens, by the ids; logits of the last alone."""
        tokens.n_tokens = batch * len(ids)
        for row in range(batch):
            for i, token in enumerate(ids):
                at = row * len(ids) + i
                tokens.token[at] = token
                tokens.pos[at] = first + i
                tokens.n_seq_id[at] = 1
                tokens.seq_id[at][0] = row
                tokens.logits[at] = i + 1 == len(ids)
        elapsed = timed(lambda: llama_cpp.llama_decode(context, tokens))
        return elapsed + timed(lambda: llama_cpp.llama_get_logits_ith(context, tokens.n_tokens - 1))

    ids = [(i * i + 7 * i) % config["vocab_size"] for i in range(prompt)]
    prefills, decodes = [], []
    for _ in range(4):
        llama_cpp.llama_memory_clear(memory, False)
        prefills.append(append(0, ids))
    for i in range(count):
        decodes.append(append(prompt + i, ids[:1]))
    prefill, decode = sorted(prefills[1:])[1], sorted(decodes[1:])[len(decodes) // 2]
    print(
        f"{folder}, llama.cpp, {blocks or 'own type'}, batch {batch}, prompt {prompt}: "
        f"prefill {prefill:.1f} ms ({1000 * batch * prompt / prefill:.0f} tok/s), "
        f"decode {decode:.2f} ms ({1000 * batch / decode:.1f} tok/s)"
    )
