"""Measures generation with a published model in PyTorch (transformers), as bench/generation.cpp
does in weft:

    python bench/peers/generation.py [--compile] MODEL [BATCHES [PROMPT [TOKENS [DEVICE [DTYPE]]]]]

BATCHES are numbers of sequences, as 1,16. MODEL is a folder; if it holds a config.json alone
(bench/models), weights are drawn. Attention is PyTorch's fused one, and the cache the one that
transformers uses by default. With --compile the cache is a static one, and torch.compile compiles a
step for the prompt and one for a token in the mode that decodes fastest on CPUs: max-autotune,
which measures kernels, and weights that are frozen into their layouts. It compares the likeliest
tokens with those of eager PyTorch. Compiling takes minutes, and memory for up to three copies of
the weights.
"""

import argparse
import os
import pathlib
import sys
import time

import torch
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache, StaticCache

parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
)
parser.add_argument("model")
parser.add_argument("batches", nargs="?", default="1")
parser.add_argument("prompt", nargs="?", type=int, default=512)
parser.add_argument("tokens", nargs="?", type=int, default=32)
parser.add_argument("device", nargs="?", default="cpu")
parser.add_argument("dtype", nargs="?", default="auto")
parser.add_argument("--compile", action="store_true")
args = parser.parse_args()
path, prompt, count, device = args.model, args.prompt, args.tokens, args.device
dtype = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}.get(args.dtype, "auto")
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
if args.compile:
    torch._inductor.config.freezing = True
    compiled = torch.compile(model.forward, dynamic=False, mode="max-autotune")


def static_cache(batch):
    """Returns an empty cache whose memory is there before a compiled step reads it."""
    kept = StaticCache(config=config, max_cache_len=prompt + count + 1)
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    kept.early_initialization(batch, heads, width, model.dtype, torch.device(device))
    return kept


def step(forward, tokens, kept):
    return forward(tokens, past_key_values=kept, use_cache=True, logits_to_keep=1).logits[:, -1]


def timed(function):
    start = time.perf_counter()
    function().argmax().item()  # waits for the device
    return 1000 * (time.perf_counter() - start)


def likeliest(forward, ids, kept):
    """Returns the tokens [batch, count] that follow, each the likeliest."""
    found = [step(forward, ids, kept).argmax(-1, keepdim=True)]
    while len(found) < count:
        found.append(step(forward, found[-1], kept).argmax(-1, keepdim=True))
    return torch.cat(found, 1)


def check(ids, kept):
    """Compares with the tokens of eager steps; in float32 they must be the same."""
    own = likeliest(compiled, ids, kept)
    eager = likeliest(model.forward, ids, DynamicCache(config=config))
    same = (own == eager).all(0).long().cumprod(0).sum().item()
    print(f"  batch {len(ids)}: {same} of {count} likeliest tokens are those of eager PyTorch")
    if same < count and model.dtype == torch.float32:
        sys.exit("error: compiled steps compute something else than eager ones.")


@torch.inference_mode()
def measure(batch):
    row = [(i * i + 7 * i) % config.vocab_size for i in range(prompt)]
    ids = torch.tensor([row] * batch, device=device)
    forward = compiled if args.compile else model.forward
    if args.compile:
        kept = static_cache(batch)  # one for all: a compiled step is bound to its memory
        check(ids, kept)
    prefills, decodes = [], []
    for _ in range(4):
        if args.compile:
            kept.reset()
        else:
            kept = DynamicCache(config=config)
        prefills.append(timed(lambda: step(forward, ids, kept)))
    for _ in range(count):
        decodes.append(timed(lambda: step(forward, ids[:, :1], kept)))
    prefill, decode = sorted(prefills[1:])[1], sorted(decodes[1:])[len(decodes) // 2]
    print(
        f"  batch {batch}: prefill {prefill:.2f} ms ({1000 * batch * prompt / prefill:.0f} tok/s), "
        f"decode {decode:.2f} ms ({1000 * batch / decode:.1f} tok/s)",
        flush=True,
    )


how = ", compiled" if args.compile else ""
print(f"{path}, {device}, {model.dtype}, prompt {prompt}{how}", flush=True)
for batch in args.batches.split(","):
    measure(int(batch))
