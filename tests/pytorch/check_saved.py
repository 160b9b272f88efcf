#!/usr/bin/env python3
"""Loads folders that weft saved by transformers: check_saved.py FOLDER...

Each has, besides the model, tokens.json: a list of rows of token ids, all of one length. Prints one
line of JSON for each folder: `logits` of the class that its config.json names, [rows][length]
[vocabulary or labels] or [rows][labels], in float32 with eager attention, its `names` of labels, and what transformers found `missing` or `unexpected` among the tensors, which must be nothing.
"""
import json
import pathlib
import sys

import torch
import transformers


def check(folder):
    rows = json.loads((pathlib.Path(folder) / "tokens.json").read_text(encoding="utf-8"))
    architecture = transformers.AutoConfig.from_pretrained(folder).architectures[0]
    model, found = getattr(transformers, architecture).from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True,
        local_files_only=True)
    with torch.no_grad():
        logits = model.eval()(input_ids=torch.tensor(rows)).logits
    return {"missing": sorted(found["missing_keys"]),
            "unexpected": sorted(found["unexpected_keys"]), "logits": logits.tolist(),
            "names": list(model.config.id2label.values())}


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    for folder in sys.argv[1:]:
        print(json.dumps(check(folder)))


if __name__ == "__main__":
    main()
