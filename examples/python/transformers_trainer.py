"""Trains a small GPT-2 by transformers' Trainer, its model compiled by weft.

    python transformers_trainer.py [--steps 60]

The text is $WEFT_DATA_DIR/text/tinyshakespeare.txt where that exists, and counting otherwise. Bytes
are the tokens, and the weights are random: nothing comes from a hub.
"""

import argparse
import os
import pathlib
import tempfile

import numpy as np
import torch
import transformers

import weft.torch

LENGTH = 64


def text():
    path = pathlib.Path(os.environ.get("WEFT_DATA_DIR", "")) / "text" / "tinyshakespeare.txt"
    if path.exists():
        return path.read_bytes()
    return " ".join(map(str, range(20_000))).encode()


def windows(tokens):
    """Cuts the text in windows, whose labels are their own tokens: the model shifts them."""
    rows = torch.from_numpy(tokens[: len(tokens) // LENGTH * LENGTH].astype("i8")).view(-1, LENGTH)
    return [{"input_ids": row, "labels": row} for row in rows]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--eager", action="store_true", help="without weft, to compare")
    options = parser.parse_args()

    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=256, n_positions=LENGTH, n_embd=64, n_layer=2, n_head=4,
        resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, bos_token_id=None, eos_token_id=None,
        loss_type="ForCausalLM"))
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            output_dir=folder, max_steps=options.steps, per_device_train_batch_size=8,
            learning_rate=3e-3, logging_steps=max(options.steps // 4, 1), save_strategy="no",
            report_to=[], use_cpu=True, seed=1, disable_tqdm=True)
        # Not torch_compile_backend="weft": accelerate refuses names that it does not list. The
        # callback compiles the model when training begins.
        callbacks = [] if options.eager else [weft.torch.trainer_callback()]
        trainer = transformers.Trainer(
            model=model, args=arguments, callbacks=callbacks,
            train_dataset=windows(np.frombuffer(text(), "u1")))
        result = trainer.train()
    print(weft.torch.report())
    print(f"mean loss of {options.steps} steps: {result.training_loss:.5f}")


if __name__ == "__main__":
    main()
