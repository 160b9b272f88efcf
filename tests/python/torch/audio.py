"""Lets torchaudio's models load beside a torch that its compiled part was not built for."""

import importlib.util
import sys


def stand_in():
    """Puts a package torchaudio in sys.modules whose own __init__, which loads the compiled part,
    is not run: its models are plain Python."""
    found = importlib.util.find_spec("torchaudio")
    if found is None or "torchaudio" in sys.modules:
        return
    sys.modules["torchaudio"] = importlib.util.module_from_spec(found)


stand_in()
