"""Lets torchvision's Python part load beside a torch that its compiled part was not built for."""

import importlib.util
import pathlib
import re

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


LIBRARY = declare_operators()
