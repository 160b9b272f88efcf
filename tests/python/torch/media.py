"""Lets the Python parts of torchvision and torchaudio load beside a torch that their compiled parts
were not built for. transformers imports both where they are installed."""

import importlib.util
import pathlib
import re
import sys

import torch


def declare_operators():
    """Declares the operators that torchvision's compiled part would bring, for its own files."""
    found = importlib.util.find_spec("torchvision")
    if found is None or hasattr(torch.ops.torchvision, "nms"):
        return None
    folder = pathlib.Path(found.origin).parent
    text = (folder / "_meta_registrations.py").read_text()
    library = torch.library.Library("torchvision", "DEF")
    names = set(re.findall(r"torchvision::(\w+)", text))
    names |= set(re.findall(r'register_meta\("(\w+)"', text))
    for name in sorted(names):
        library.define(f"{name}(Tensor x) -> Tensor")
    return library  # which holds the declarations


def stand_in():
    """Puts a package torchaudio in sys.modules whose own __init__, which loads the compiled part,
    is not run: its models are plain Python."""
    found = importlib.util.find_spec("torchaudio")
    if found is not None and "torchaudio" not in sys.modules:
        sys.modules["torchaudio"] = importlib.util.module_from_spec(found)


LIBRARY = declare_operators()
stand_in()
