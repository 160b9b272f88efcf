"""Runs of recipes: they are those of the program, and nets in Python train alike."""

import json
import os
import signal
import threading
import time

import numpy as np
import pytest

import weft
from weft import data, nn, optim

RECIPE = {
    "name": "quick",
    "seed": 3,
    "model": {"name": "mlp", "config": {"hidden_sizes": [16], "dropout": 0.1}},
    "data": {"dataset": "random-images", "classes": 5, "image_size": 4},
    "optimizer": {"name": "adamw", "lr": 1e-2},
    "train": {"steps": 30, "global_batch_size": 32},
    "log": {"every": 10},
}


def run(folder, values=None, **options):
    return weft.train(RECIPE, values, runs=folder, quiet=True, **options)


def test_a_recipe_trains_as_in_the_program(tmp_path, capfd):
    result = run(tmp_path)
    assert result.step == 30 and not result.stopped and result.exit_code == 0
    assert result.train_loss < 1 and result.evaluation["accuracy"] > 0.5
    assert [line["step"] for line in result.log if "grad_norm" in line] == [10, 20, 30]
    file = tmp_path / "recipe.json"  # JSON is YAML
    file.write_text(json.dumps(RECIPE))
    assert capfd.readouterr().out == ""
    assert weft._weft.main(["weft", "train", str(file), "--runs", str(tmp_path / "other"),
                            "--json"]) == 0
    printed = json.loads(capfd.readouterr().out)
    assert printed["train_loss"] == result.train_loss
    assert printed["eval_accuracy"] == result.evaluation["accuracy"]


def test_a_recipe_is_planned_as_in_the_program(tmp_path, capfd):
    file = tmp_path / "recipe.json"
    file.write_text(json.dumps(RECIPE))
    assert weft._weft.main(["weft", "plan", str(file), "--on", "h100", "--json"]) == 0
    printed = json.loads(capfd.readouterr().out)
    assert weft.plan(RECIPE, on="h100") == weft.plan(file, on=["h100"])["h100"] == printed
    assert "optimizer" in repr(weft.plan(RECIPE)) and not os.path.exists("runs/quick")
    with pytest.raises(MemoryError):
        weft.plan(RECIPE, {"train.memory": "1KiB"})


class Mlp(nn.Module):
    """The net of the zoo's "mlp", in Python."""

    def __init__(self):
        super().__init__()
        self.dropout = nn.Dropout(0.1)
        self.fc1 = nn.Linear(48, 16)
        self.fc2 = nn.Linear(16, 5)

    def forward(self, x):
        return self.fc2(self.dropout(weft.relu(self.fc1(x.reshape((x.shape[0], -1))))))


def test_a_net_in_python_trains_to_the_bit_as_in_cpp(tmp_path):
    result = run(tmp_path)
    weft.manual_seed(3)
    net = Mlp()
    optimizer = optim.AdamW(net.parameters(), lr=1e-2)

    @weft.compile
    def step(images, labels):
        loss = weft.cross_entropy(net(images), labels)
        optimizer.step(weft.grad(loss, net.parameters()))
        return loss

    source = data.random_images("train", (3, 4, 4), classes=5, seed=3)
    loader = data.Loader(source, batch_size=32, shuffle=True, drop_last=True, seed=3)
    for _, (images, labels) in zip(range(30), loader):
        loss = step(images, labels)
    assert loss.item() == result.train_loss
    weights = weft.io.Safetensors(os.path.join(result.checkpoint, "model.safetensors"))
    for name, value in net.state_dict().items():
        assert (np.asarray(value) == np.asarray(weights[name])).all(), name
    weft.manual_seed(0)


def test_values_override_the_recipe_and_errors_name_the_key(tmp_path):
    assert run(tmp_path, {"train.steps": 2, "model.config.dropout": 0}).step == 2
    with pytest.raises(weft.UsageError, match="optimizer.lr"):
        run(tmp_path, {"optimizer.lr": -1}, overwrite=True)
    with pytest.raises(weft.UsageError, match="optimzer"):
        weft.train({"optimzer": {}}, runs=tmp_path)
    with pytest.raises(weft.UsageError, match="quick"):  # the run exists
        run(tmp_path)


def test_steps_are_reported_while_other_threads_run(tmp_path):
    steps, ticks, done = [], [], threading.Event()

    def tick():
        while not done.wait(0.002):
            ticks.append(len(steps))

    thread = threading.Thread(target=tick)
    thread.start()
    run(tmp_path, on_step=steps.append)
    done.set()
    thread.join()
    assert steps == list(range(1, 31)) and len(ticks) > 3


def test_what_a_callback_raises_ends_the_run(tmp_path):
    def fail(step):
        if step == 3:
            raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        run(tmp_path, on_step=fail)
    assert run(tmp_path, overwrite=True).step == 30


def test_ctrl_c_saves_and_a_resumed_run_ends_alike(tmp_path):
    before = signal.getsignal(signal.SIGINT)
    stopped = run(tmp_path, on_step=lambda step: step == 7 and os.kill(os.getpid(), signal.SIGINT))
    assert stopped.stopped and stopped.exit_code == 75 and stopped.step == 7
    assert signal.getsignal(signal.SIGINT) is before
    with pytest.raises(KeyboardInterrupt):  # Python's own handler is back
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)
    resumed = run(tmp_path, resume=True)
    whole = run(tmp_path / "whole")
    assert resumed.step == 30 and resumed.train_loss == whole.train_loss
