#!/usr/bin/env python3
"""Prints what llama.cpp makes of GGUF files that weft wrote: log_probabilities.py TOKENS FILE...

TOKENS is a file of JSON, a list of rows of token ids. Prints one line of JSON for each FILE: the
logarithms of the next token's probabilities, [rows][length][vocabulary]. The cache is in float32,
so that it adds no rounding to that of the weights.
"""
import json
import pathlib
import sys

import llama_cpp
import numpy as np

F32 = 0  # GGML_TYPE_F32


def log_probabilities(path, rows):
    model = llama_cpp.Llama(path, n_ctx=64, n_threads=1, n_threads_batch=1, logits_all=True,
                            type_k=F32, type_v=F32, verbose=False)
    result = []
    for row in rows:
        model.reset()
        model.eval(row)
        logits = np.array(model.scores[:len(row)], dtype=np.float64)
        logits -= logits.max(axis=-1, keepdims=True)
        logits -= np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        result.append(logits.tolist())
    return result


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    rows = json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))
    for path in sys.argv[2:]:
        print(json.dumps(log_probabilities(path, rows)), flush=True)


if __name__ == "__main__":
    main()
