#!/usr/bin/env python3
"""Writes labelled/: BERT, RoBERTa and DistilBERT of Hugging Face's transformers that learn labels of
samples and of words (see README.md).

    pip install torch==2.13.0 transformers==5.24.0 numpy && python tests/reference/make_labelled.py
"""
import json
import pathlib
import tempfile

import tokenizers
import torch
import transformers

import formula
from make_encoders import BERT, DISTILBERT, make, numbers, numbers_of_integers, saved

HERE = pathlib.Path(__file__).parent
FOLDER = HERE / "labelled"
LENGTH, STEPS, RATE = 14, 2, 0.1
SIZES = {"vocab_size": 520, "max_position_embeddings": 20, "initializer_range": 0.3}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
              "classifier_dropout": 0.0}
# RoBERTa's special tokens and what it puts around a text, in a tokenizer of GPT-2's kind.
ADDED = [{"id": 500 + i, "content": token, "single_word": False, "lstrip": token == "<mask>",
          "rstrip": False, "normalized": False, "special": True}
         for i, token in enumerate(["<s>", "<pad>", "</s>", "<mask>"])]
ROBERTA = {"added_tokens": ADDED,
           "post_processor": {"type": "RobertaProcessing", "sep": ["</s>", 502],
                              "cls": ["<s>", 500], "trim_offsets": True,
                              "add_prefix_space": False}}
FAMILIES = {
    "bert": ("Bert", "bert", {}, {**BERT, **SIZES, **NO_DROPOUT, "pad_token_id": 0}),
    "roberta": ("Roberta", "gpt2", ROBERTA,
                {**BERT, **SIZES, **NO_DROPOUT, "type_vocab_size": 1, "pad_token_id": 501,
                 "bos_token_id": 500, "eos_token_id": 502, "max_position_embeddings": 530}),
    "distilbert": ("DistilBert", "bert", {},
                   {**DISTILBERT, **SIZES, "dropout": 0.0, "attention_dropout": 0.0,
                    "seq_classif_dropout": 0.0, "pad_token_id": 0}),
}
SAMPLES = [("The sea is calm.", "good"), ("A storm, and no harbour near!", "bad"),
           ("Bread and salt.", "fair"),
           ("What began as a short walk over the hills became a journey of many days.", "good"),
           ("naïve café", "bad"), ("42", "fair")]
WORDS = [(["John", "lives", "in", "Reykjavík", "."], ["B-PER", "O", "O", "B-LOC", "O"]),
         (["Ann-Marie", "and", "O'Neill", "left", "New", "York", ",", "but", "Paris", "stayed"],
          ["B-PER", "O", "B-PER", "O", "B-LOC", "I-LOC", "O", "O", "B-LOC", "O"]),
         (["Nobody", "."], ["O", "O"])]
NAMES = ["O", "B-PER", "B-LOC", "I-LOC"]


def tokenizer_of(name, update, spaced):
    """Returns a tokenizer; `spaced` puts a space before each word, as add_prefix_space=True does,
    which run_ner asks for where a tokenizer is one of bytes."""
    text = json.loads((HERE / "tokenizers" / f"{name}.json").read_text())
    text["added_tokens"] += update.get("added_tokens", [])
    text.update({key: value for key, value in update.items() if key != "added_tokens"})
    if spaced and text["pre_tokenizer"]["type"] == "ByteLevel":
        text["pre_tokenizer"]["add_prefix_space"] = True
    pad = "<pad>" if update else "[PAD]"
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer.from_str(json.dumps(text)), pad_token=pad)


def batch_of_samples(tokenizer):
    """Returns the names of the labels and a batch, as run_glue makes them."""
    names = sorted({label for _, label in SAMPLES})
    batch = tokenizer([text for text, _ in SAMPLES], padding="max_length", max_length=LENGTH,
                      truncation=True, return_tensors="pt")
    return names, batch, torch.tensor([names.index(label) for _, label in SAMPLES])


def batch_of_words(tokenizer):
    """Returns the names of the labels and a batch, as run_ner makes them."""
    batch = tokenizer([words for words, _ in WORDS], padding="max_length", max_length=LENGTH,
                      truncation=True, is_split_into_words=True, return_tensors="pt")
    labels = []
    for i, (_, of_words) in enumerate(WORDS):
        before, row = None, []
        for word in batch.word_ids(batch_index=i):
            first = word is not None and word != before
            row.append(NAMES.index(of_words[word]) if first else -100)
            before = word
        labels.append(row)
    return NAMES, batch, torch.tensor(labels)


def write(family, head):
    prefix, name, update, sizes = FAMILIES[family]
    of_words = head == "ForTokenClassification"
    tokenizer = tokenizer_of(name, update, of_words)
    names, batch, labels = batch_of_words(tokenizer) if of_words else batch_of_samples(tokenizer)
    named = {"id2label": dict(enumerate(NAMES))} if of_words else {"num_labels": len(names)}
    config = getattr(transformers, prefix + "Config")(**sizes, **named)
    text, recipes = saved(config, prefix + head)
    net = make(config, prefix + head, recipes).train()
    inputs = {key: batch[key] for key in ("input_ids", "attention_mask")}
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
    losses = []
    for _ in range(STEPS):
        loss = net(**inputs, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    after = net(**inputs, labels=labels)
    lines = [{"tokens": words, "labels": of} for words, of in WORDS] if of_words else [
        {"text": sample, "label": label} for sample, label in SAMPLES]
    row = {"architecture": prefix + head, "config": text, "tensors": recipes,
           "tokenizer": {"name": name, **update}, "lines": lines, "names": names,
           "inputs": numbers_of_integers(inputs["input_ids"]),
           "labels": numbers_of_integers(labels), "lr": RATE, "losses": losses,
           "loss_after": after.loss.item(), "logits_after": numbers(after.logits),
           "generator": {"torch": torch.__version__, "transformers": transformers.__version__}}
    path = FOLDER / f"{family}_{head.removeprefix('For').lower()}.json"
    path.write_text(json.dumps(row, separators=(",", ":")).replace('},{"name"', '},\n{"name"') +
                    "\n")
    print(path.name, path.stat().st_size, losses, after.loss.item())


if __name__ == "__main__":
    torch.set_num_threads(1)
    FOLDER.mkdir(exist_ok=True)
    for family_name in FAMILIES:
        for head_name in ("ForSequenceClassification", "ForTokenClassification"):
            write(family_name, head_name)
