"""python -m weft is the program weft."""

import sys
from pathlib import Path

from ._weft import main as run

_TAKES_A_RECIPE = ("plan", "train", "profile")


def _with_recipe(arguments):
    """Replaces the name of one of weft's recipes by the path of its file in this package.

    The program looks for recipes beside its own file, which is Python's interpreter here.
    """
    if len(arguments) < 2 or arguments[0] not in _TAKES_A_RECIPE:
        return arguments
    verb, name, *rest = arguments
    of_user = Path(name), Path("recipes", f"{name}.yaml")
    file = Path(__file__).with_name("recipes") / f"{name}.yaml"
    if Path(name).name != name or not file.is_file() or any(path.exists() for path in of_user):
        return arguments
    return [verb, str(file), *rest]


def main():
    return run(["weft", *_with_recipe(sys.argv[1:])])


if __name__ == "__main__":
    sys.exit(main())
