#!/usr/bin/env python3
"""Loads a folder that weft saved by transformers: check_saved.py FOLDER TOKENS, where TOKENS is a
JSON list of rows of token ids, all of one length ("-": read from standard input).

Prints one JSON object: `logits` [rows][length][vocabulary] in float32 with eager attention, and
what transformers found `missing` or `unexpected` among the tensors, which must be nothing.
"""
import json
import sys

import torch
import transformers


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    folder, tokens = sys.argv[1], sys.argv[2]
    rows = json.loads(sys.stdin.read() if tokens == "-" else tokens)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    model, found = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True,
        local_files_only=True)
    with torch.no_grad():
        logits = model.eval()(input_ids=torch.tensor(rows)).logits
    print(json.dumps({
        "made_by": f"transformers {transformers.__version__}",
        "missing": sorted(found["missing_keys"]),
        "unexpected": sorted(found["unexpected_keys"]),
        "logits": logits.tolist(),
    }))


if __name__ == "__main__":
    main()
