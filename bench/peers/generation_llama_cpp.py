"""Measures generation with a GGUF file in llama.cpp, as bench/generation.cpp does in weft:

    weft quantize models/gpt2 gpt2-q8.gguf --to q8_0
    build/release/bench/generation gpt2-q8.gguf 16 512 32
    python bench/peers/generation_llama_cpp.py gpt2-q8.gguf [BATCH [PROMPT [TOKENS]]]

It needs llama-cpp-python, which builds llama.cpp for the machine. The cache of keys and values is
llama.cpp's own choice, float16.
"""

import ctypes
import os
import resource
import sys
import time

import llama_cpp

defaults = ["", "1", "512", "32"]
path, batch, prompt, count = (sys.argv[1:] + defaults[len(sys.argv) - 1 :])[:4]
batch, prompt, count = int(batch), int(prompt), int(count)
threads = int(os.environ.get("WEFT_THREADS", "2"))


def timed(function):
    start = time.perf_counter()
    function()
    return 1000 * (time.perf_counter() - start)


llama_cpp.llama_backend_init()
# Errors alone: the loader reports each tensor.
quiet = llama_cpp.llama_log_callback(
    lambda level, text, _: level >= 4 and sys.stderr.write(text.decode())
)
llama_cpp.llama_log_set(quiet, ctypes.c_void_p())
model = llama_cpp.llama_model_load_from_file(
    path.encode(), llama_cpp.llama_model_default_params()
)
if not model:
    raise SystemExit(f"llama.cpp does not load {path}")
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


vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
ids = [(i * i + 7 * i) % vocabulary for i in range(prompt)]
prefills, decodes = [], []
for _ in range(4):
    llama_cpp.llama_memory_clear(memory, False)
    prefills.append(append(0, ids))
for i in range(count):
    decodes.append(append(prompt + i, ids[:1]))
prefill, decode = sorted(prefills[1:])[1], sorted(decodes[1:])[len(decodes) // 2]
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(
    f"{path}, llama.cpp, batch {batch}, prompt {prompt}: "
    f"prefill {prefill:.1f} ms ({1000 * batch * prompt / prefill:.0f} tok/s), "
    f"decode {decode:.2f} ms ({1000 * batch / decode:.1f} tok/s), peak {peak:.0f} MiB"
)
