#!/usr/bin/env python3
"""Writes encoders/: BERT, RoBERTa and DistilBERT of Hugging Face's transformers with three heads
each, in float64 (see README.md).

    pip install torch==2.13.0 transformers==5.24.0 numpy && python tests/reference/make_encoders.py
"""
import json
import pathlib
import tempfile

import torch
import transformers
from safetensors import safe_open

import formula

FOLDER = pathlib.Path(__file__).parent / "encoders"
BATCH, LENGTH = 3, 7
LENGTHS = [7, 4, 2]  # tokens before the padding
STEPS, RATE = 2, 0.1

# Keys of the dropouts of each family, and values of the shared sizes under its names.
BERT = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 24, "vocab_size": 30, "max_position_embeddings": 12}
DISTILBERT = {"dim": 16, "n_layers": 2, "n_heads": 4, "hidden_dim": 24, "vocab_size": 30,
              "max_position_embeddings": 9}
BERT_DROPOUTS = ["hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"]
DISTILBERT_DROPOUTS = ["dropout", "attention_dropout", "seq_classif_dropout"]

FAMILIES = {
    "bert": ("Bert", BERT, BERT_DROPOUTS, "hidden_act", [
        {"num_labels": 3},
        {"num_labels": 5, "num_attention_heads": 2, "layer_norm_eps": 1e-2, "type_vocab_size": 3,
         "pad_token_id": 4},
        {"hidden_act": "gelu_new"},
    ]),
    "roberta": ("Roberta", {**BERT, "type_vocab_size": 1, "layer_norm_eps": 1e-5}, BERT_DROPOUTS,
                "hidden_act", [
        {"num_labels": 2, "type_vocab_size": 2},
        {"num_labels": 4, "pad_token_id": 3},
        {"hidden_act": "relu"},
    ]),
    "distilbert": ("DistilBert", DISTILBERT, DISTILBERT_DROPOUTS, "activation", [
        {"num_labels": 2},
        {"num_labels": 3, "n_heads": 8, "pad_token_id": 2},
        {"activation": "relu"},
    ]),
}
HEADS = ["ForSequenceClassification", "ForTokenClassification", "ForMaskedLM"]
ACTIVATIONS = ["gelu", "relu", "gelu_new", "gelu_pytorch_tanh", "gelu_fast", "gelu_python",
               "quick_gelu", "silu", "swish", "tanh", "mish", "linear"]


def drawn(stream, name, shape):
    """Returns the recipe of a tensor: norms around 1, matrices that keep the logits lively."""
    norm = "norm" in name.lower() and name.endswith("weight")
    scale = 0.3 if len(shape) == 1 else 1.0 if "embeddings" in name else 0.5
    return {"name": name, "stream": stream, "shape": shape, "scale": scale,
            "shift": 1.0 if norm else 0.0}


def elements(recipe):
    """Returns float64 values that float32 holds exactly, as a file of float32 gives them."""
    values = formula.uniform(recipe["stream"], recipe["shape"], recipe["scale"], recipe["shift"])
    return torch.from_numpy(values).float().double()


def inputs_of(config):
    """Returns tokens with padding behind each row's length, and one pad among the seen tokens."""
    pad = config.pad_token_id
    ids = formula.integers(1000, [BATCH, LENGTH], config.vocab_size)
    beyond = formula.np.arange(LENGTH)[None, :] >= formula.np.array(LENGTHS)[:, None]
    ids[ids == pad] = pad + 1
    ids[beyond] = pad
    ids[0, 3] = pad
    inputs = {"input_ids": ids, "attention_mask": (~beyond).astype("int64")}
    if getattr(config, "type_vocab_size", 1) > 1:
        inputs["token_type_ids"] = formula.integers(1001, [BATCH, LENGTH], config.type_vocab_size)
    return {key: torch.from_numpy(value) for key, value in inputs.items()}


def labels_of(head, config, inputs):
    """Returns labels, of which -100 do not count."""
    if head == "ForSequenceClassification":
        return torch.from_numpy(formula.integers(2000, [BATCH], config.num_labels))
    masked = head == "ForMaskedLM"
    count = config.vocab_size if masked else config.num_labels
    labels = torch.from_numpy(formula.integers(2000, [BATCH, LENGTH], count))
    labels[inputs["attention_mask"] == 0] = -100
    if masked:
        labels[torch.from_numpy(formula.integers(2001, [BATCH, LENGTH], 3)) > 0] = -100
        assert (labels != -100).sum() >= 3
    return labels


def numbers(tensor):
    """Returns the shape and the elements, to ten digits."""
    return {"shape": list(tensor.shape),
            "values": [float(f"{x:.10g}") for x in tensor.detach().flatten().tolist()]}


def digest(tensor, stream):
    """Returns the norm and the dot product with the formula's elements."""
    weights = torch.from_numpy(formula.uniform(stream, list(tensor.shape)))
    return [tensor.norm().item(), (tensor * weights).sum().item()]


def make(config, architecture, recipes=None):
    """Returns a model in float64 and eval mode; sets the tensors that save_pretrained() writes."""
    net = getattr(transformers, architecture)._from_config(config, attn_implementation="eager")
    net = net.double().eval()
    if recipes is not None:
        with torch.no_grad():
            state = dict(net.named_parameters())
            for recipe in recipes:
                state[recipe["name"]].copy_(elements(recipe))
    return net


def saved(config, architecture):
    """Returns config.json as it is written, and the recipes of the tensors of the file."""
    with tempfile.TemporaryDirectory() as folder:
        getattr(transformers, architecture)(config).save_pretrained(folder)
        with safe_open(folder + "/model.safetensors", "pt") as file:
            shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}
        text = json.loads(pathlib.Path(folder, "config.json").read_text())
    return text, [drawn(i, name, shape) for i, (name, shape) in enumerate(sorted(shapes.items()))]


def write(family, head, own):
    prefix, base, dropouts, act, _ = FAMILIES[family]
    architecture = prefix + head
    kind = getattr(transformers, prefix + "Config")
    config = kind(**{**base, **own})
    text, recipes = saved(config, architecture)
    inputs = inputs_of(config)
    labels = labels_of(head, config, inputs)
    net = make(config, architecture, recipes)
    row = {"architecture": architecture, "config": text, "tensors": recipes,
           "inputs": {key: numbers_of_integers(value) for key, value in inputs.items()},
           "labels": numbers_of_integers(labels),
           "logits": numbers(net(**inputs).logits),
           "logits_of_tokens_alone": numbers(net(inputs["input_ids"]).logits)}

    # Without dropout a step in train mode is that of eval mode; with a dropout of 1, a run in
    # train mode has one result, which tells where that dropout stands.
    row["dropped"], row["activations"] = {}, {}
    if head != "ForMaskedLM":
        for key in dropouts:
            changed = kind(**{**base, **own, **{each: 0.0 for each in dropouts}, key: 1.0})
            logits = make(changed, architecture, recipes).train()(**inputs).logits
            row["dropped"][key] = numbers(logits)
    if head == "ForSequenceClassification":
        for name in ACTIVATIONS:
            logits = make(kind(**{**base, **own, act: name}), architecture, recipes)(**inputs).logits
            row["activations"][name] = numbers(logits)

    optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
    row["training"] = {"lr": RATE, "losses": [], "after": {}}
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = net(**inputs, labels=labels).loss
        loss.backward()
        optimizer.step()
        row["training"]["losses"].append(loss.item())
    state = dict(net.named_parameters())
    for i, recipe in enumerate(recipes):
        row["training"]["after"][recipe["name"]] = digest(state[recipe["name"]], 3000 + i)
    row["generator"] = {"torch": torch.__version__, "transformers": transformers.__version__}
    path = FOLDER / f"{family}_{head.removeprefix('For').lower()}.json"
    path.write_text(json.dumps(row, indent=None, separators=(",", ":")).replace(
        '},{"name"', '},\n{"name"').replace('"values":', '\n"values":') + "\n")
    print(path.name, path.stat().st_size, row["training"]["losses"])


def numbers_of_integers(tensor):
    return {"shape": list(tensor.shape), "values": tensor.flatten().tolist()}


if __name__ == "__main__":
    torch.set_num_threads(1)
    FOLDER.mkdir(exist_ok=True)
    for family, (_, _, _, _, heads) in FAMILIES.items():
        for head, own in zip(HEADS, heads):
            write(family, head, own)
