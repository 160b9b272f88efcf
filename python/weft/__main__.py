"""python -m weft is the program weft."""

import sys

from ._weft import main as run
from .training import recipe_file

_TAKES_A_RECIPE = ("plan", "train", "profile")


def main():
    arguments = sys.argv[1:]
    if len(arguments) > 1 and arguments[0] in _TAKES_A_RECIPE:
        arguments[1] = recipe_file(arguments[1])
    return run(["weft", *arguments])


if __name__ == "__main__":
    sys.exit(main())
