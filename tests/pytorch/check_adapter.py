#!/usr/bin/env python3
"""Loads an adapter that weft saved by PEFT: check_adapter.py TOKENS BASE ADAPTER

TOKENS is a file of JSON, a list of rows of token ids, all of one length; BASE is the folder of the
adapted model. Prints one line of JSON: `logits` of the adapted model, [rows][length][vocabulary],
in float32 with eager attention, and the tensors that only PEFT or only the file has, which must be
none, as `differ`.
"""
import json
import pathlib
import sys

import peft
import torch
import transformers
from safetensors.torch import load_file


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    rows = json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))
    base, folder = sys.argv[2:]
    model = transformers.AutoModelForCausalLM.from_pretrained(
        base, dtype=torch.float32, attn_implementation="eager", local_files_only=True)
    model = peft.PeftModel.from_pretrained(model, folder).eval()
    saved = load_file(pathlib.Path(folder) / "adapter_model.safetensors")
    differ = saved.keys() ^ peft.get_peft_model_state_dict(model).keys()
    with torch.no_grad():
        logits = model(input_ids=torch.tensor(rows)).logits
    print(json.dumps({"differ": sorted(differ), "logits": logits.tolist()}))


if __name__ == "__main__":
    main()
