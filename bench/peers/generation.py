"""Measures generation with a published model in PyTorch (transformers), as bench/generation.cpp does in weft:

    python bench/peers/generation.py MODEL [BATCHES [PROMPT [TOKENS [DEVICE [DTYPE]]]]]

BATCHES are numbers of sequences, as 1,16. MODEL is a folder; if it holds a config.json alone (bench/models), weights are drawn.
Attention is PyTorch's fused one; the cache is the one that transformers uses by default, or a static one with
torch.compile where COMPILE=1.
"""

import os
import pathlib
import sys
import time

import torch
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache, StaticCache

defaults = ["", "1", "512", "32", "cpu", "auto"]
path, batches, prompt, count, device, dtype = (sys.argv[1:] + defaults[len(sys.argv) - 1 :])[:6]
prompt, count = int(prompt), int(count)
dtype = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}.get(dtype, "auto")
torch.set_num_threads(int(os.environ.get("WEFT_THREADS", "2")))
config = AutoConfig.from_pretrained(path)
if not any(pathlib.Path(path).glob("*.safetensors")):
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa")
else:
    model = AutoModelForCausalLM.from_pretrained(path, dtype=dtype, attn_implementation="sdpa")
model = model.to(device).eval()
# cuDNN's attention would be planned again for each length of the cache.
torch.backends.cuda.enable_cudnn_sdp(False)
compiled = os.environ.get("COMPILE") == "1"
if compiled:
    model.forward = torch.compile(model.forward)


def cache():
    if compiled:
        return StaticCache(config=config, max_cache_len=prompt + count + 1)
    return DynamicCache(config=config)


def step(tokens, kept):
    return model(tokens, past_key_values=kept, use_cache=True, logits_to_keep=1).logits


def timed(function):
    start = time.perf_counter()
    function().argmax().item()  # waits for the device
    return 1000 * (time.perf_counter() - start)


@torch.inference_mode()
def measure(batch):
    row = [(i * i + 7 * i) % config.vocab_size for i in range(prompt)]
    ids = torch.tensor([row] * batch, device=device)
    prefills, decodes = [], []
    for _ in range(4):
        kept = cache()
        prefills.append(timed(lambda: step(ids, kept)))
    for _ in range(count):
        decodes.append(timed(lambda: step(ids[:, :1], kept)))
    prefill, decode = sorted(prefills[1:])[1], sorted(decodes[1:])[len(decodes) // 2]
    print(
        f"  batch {batch}: prefill {prefill:.2f} ms ({1000 * batch * prompt / prefill:.0f} tok/s), "
        f"decode {decode:.2f} ms ({1000 * batch / decode:.1f} tok/s)"
    )


print(
    f"{path}, {device}, {next(model.parameters()).dtype}, prompt {prompt}{', compiled' if compiled else ''}"
)
for batch in batches.split(","):
    measure(int(batch))
