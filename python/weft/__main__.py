"""python -m weft is the program weft."""

import sys
from pathlib import Path

from ._weft import main as run

_TAKES_A_RECIPE = ("plan", "train", "profile")


def recipe_file(name):
    """Returns the path of the file in this package, where the name is that of one of its recipes.

    The program looks for recipes beside its own file, which is Python's interpreter here.
    """
    of_user = Path(name), Path("recipes", f"{name}.yaml")
    file = Path(__file__).with_name("recipes") / f"{name}.yaml"
    if Path(name).name != name or not file.is_file() or any(path.exists() for path in of_user):
        return name
    return str(file)


def main():
    arguments = sys.argv[1:]
    if len(arguments) > 1 and arguments[0] in _TAKES_A_RECIPE:
        arguments[1] = recipe_file(arguments[1])
    return run(["weft", *arguments])


if __name__ == "__main__":
    sys.exit(main())
