"""Writes instructions.json: the ids of prompts with completions, and which of them are learned.

    pip install tokenizers==0.23.3 && python tests/reference/make_instructions.py

A prompt and its completion are one text to a tokenizer. The tokens that end behind the prompt are
learned, by the offsets of the `tokenizers` package.
"""

import json
import pathlib

from tokenizers import Tokenizer

HERE = pathlib.Path(__file__).parent
PAIRS = [
    ("The quick weaver", " mends her loom."),
    ("The quick weaver mends", "her loom"),
    ("Question: what is a loom?\nAnswer: ", "A machine that weaves."),
    ("Where? ", "  Two spaces, and a line\n"),
    ("for (size_t i = 0; i < n; ", "++i) sum += x[i];"),
    ("織工は", "織機を直し、夕方にはお茶を飲む。"),
    ("Tea", " ☕ 👩‍💻 is hot ☕"),
    ("☕", "👍🏽"),
    (" leading", " and trailing "),
    ("<s>[INST] weave </s>", "<s>loom</s> done"),
    ("all of it is asked", ""),
]

cases = []
for name in ("llama2", "gpt2", "llama3"):
    tokenizer = Tokenizer.from_file(str(HERE / "tokenizers" / f"{name}.json"))
    for prompt, completion in PAIRS:
        encoded = tokenizer.encode(prompt + completion, add_special_tokens=False)
        cases.append({
            "tokenizer": name,
            "prompt": prompt,
            "completion": completion,
            "ids": encoded.ids,
            "learned": [int(end > len(prompt)) for _, end in encoded.offsets],
        })
lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases)
(HERE / "instructions.json").write_text(f"[\n{lines}\n]\n")
