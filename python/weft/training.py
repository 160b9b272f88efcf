"""weft.train() runs a recipe, and weft.plan() plans it, as the program's verbs do."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ._weft import _train


def recipe_file(name):
    """Returns the path of the file in this package, where the name is that of one of its recipes.

    The program looks for recipes beside its own file, which is Python's interpreter here.
    """
    of_user = Path(name), Path("recipes", f"{name}.yaml")
    file = Path(__file__).with_name("recipes") / f"{name}.yaml"
    if Path(name).name != name or not file.is_file() or any(path.exists() for path in of_user):
        return name
    return str(file)


class TrainResult:
    """What a run reached.

    step: updates that are done. train_loss: of the last update's batch. evaluation: a dict of the
    last evaluation, loss, accuracy and others by name, or None. run_folder and checkpoint: paths.
    stopped: a signal stopped the run after a save; train(..., resume=True) goes on.
    """

    def __init__(self, result) -> None:
        self.step, self.train_loss = result.step, result.train_loss
        self.evaluation = result.evaluation
        self.run_folder, self.checkpoint = result.run_folder, result.checkpoint
        self.exit_code = result.exit_code
        self.stopped = result.exit_code != 0

    @property
    def log(self) -> list[dict[str, Any]]:
        """The lines of the run's log.jsonl: a dict for each, with step, loss, lr and others."""
        with open(Path(self.run_folder) / "log.jsonl", encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def __repr__(self) -> str:
        return (f"TrainResult(step={self.step}, train_loss={self.train_loss}, "
                f"evaluation={self.evaluation}, run_folder={self.run_folder!r})")


def _read(recipe, values):
    """Returns the recipe of the program: of a dict, or of a path or name."""
    is_name = not isinstance(recipe, Mapping)
    text = recipe_file(os.fspath(recipe)) if is_name else json.dumps(recipe)
    flags = [(path, value if isinstance(value, str) else json.dumps(value))
             for path, value in (values or {}).items()]
    return _train.Recipe.read(text, is_name, flags)


class RecipePlan(dict[str, Any]):
    """What a run takes: the keys of the run's plan.json, and its table when it is printed."""

    def __init__(self, text, table) -> None:
        super().__init__(json.loads(text))
        self._table = table

    def __repr__(self):
        return self._table


def plan(recipe, values=None, on="") -> RecipePlan:
    """Plans a recipe without running it: memory, time and more. See weft.plan."""
    if not isinstance(on, str):
        return {each: plan(recipe, values, each) for each in on}
    return RecipePlan(*_train.plan(_read(recipe, values), on))


def train(recipe, values=None, *, runs="runs", resume=False, overwrite=False, quiet=False,
          on_step=None) -> TrainResult:
    """Trains by a recipe: its keys as a dict, the path of a YAML file, or a recipe's name.

    values: {"optimizer.lr": 3e-4}, which override the recipe as flags of the program do.
    runs: the folder of all runs. resume: goes on from the run's latest checkpoint. overwrite:
    replaces a run of the same name. quiet: no lines on the screen.
    on_step(step) is called after each update, on the calling thread; what it raises ends the run.

    As in the program, SIGTERM and the first Ctrl-C save at the next step and stop (the result is
    `stopped`), and the second Ctrl-C ends the process. Other threads run meanwhile.
    UsageError: the recipe, or a run of that name exists; DataError; DoesNotFit; Error with exit
    code 6: a loss that is not finite.
    """
    return TrainResult(_train.run(_read(recipe, values), os.fspath(runs), resume, overwrite, quiet,
                                  on_step))
