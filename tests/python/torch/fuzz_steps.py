#!/usr/bin/env python3
"""Random events between the steps of a training program, beside eager torch.

    fuzz_steps.py [--seed S] [--count N]

A seed chooses a model, an optimizer, accumulation and clipping, and what happens between steps:
weights copied or replaced, buffers exchanged, layers swapped, tied, frozen or added, state cleared
or loaded, settings changed, hooks that come and go, eager steps, batches of another size, and
exceptions. All is in float64, so that a difference is a defect.
"""

import argparse
import io
import random
import sys
import time
import traceback
import warnings

import torch
from programs import check
from torch import nn


class Net(nn.Module):
    """Layers of 4 features, of which `kind` chooses one."""

    def __init__(self, kind):
        super().__init__()
        self.kind, self.scale = kind, 1.0
        self.first = nn.Linear(4, 6)
        self.norm = nn.BatchNorm1d(6) if kind < 2 else nn.LayerNorm(6)
        self.middle = nn.ModuleList([nn.Linear(6, 6), nn.Linear(6, 6)])
        self.last = nn.Linear(6, 4)
        self.register_buffer("mask", torch.ones(4))
        self.register_buffer("shift", torch.zeros(4), persistent=False)
        if kind == 1:
            self.embedding = nn.Embedding(5, 4)
        if kind == 2:
            self.recurrent = nn.LSTM(6, 6, batch_first=True)
        if kind == 3:
            self.attention = nn.MultiheadAttention(6, 2, batch_first=True)

    def forward(self, x):
        if self.kind == 1:
            x = x + self.embedding((x[:, 0].abs() * 3).long() % 5)
        x = self.norm(self.first(x)).relu()
        for layer in self.middle:
            x = layer(x).tanh() * self.scale
        if self.kind == 2:
            x = self.recurrent(x[:, None])[0][:, 0]
        if self.kind == 3:
            x = self.attention(x[None], x[None], x[None], need_weights=False)[0][0]
        return self.last(x) * self.mask + self.shift


def by_shape(parameters):
    parameters = list(parameters)
    return [{"params": [p for p in parameters if p.dim() > 1], "weight_decay": 0.1},
            {"params": [p for p in parameters if p.dim() <= 1]}]


# A large eps, as Adam's update of a gradient that is only rounding has any sign.
OPTIMIZERS = [
    lambda p: torch.optim.SGD(p, lr=0.05),
    lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
    lambda p: torch.optim.SGD(by_shape(p), lr=0.05, momentum=0.8),
    lambda p: torch.optim.Adam(p, lr=0.01, eps=1e-3),
    lambda p: torch.optim.Adam(p, lr=0.01, eps=1e-3, amsgrad=True, weight_decay=0.01),
    lambda p: torch.optim.AdamW(by_shape(p), lr=0.01, eps=1e-3),
]


# ---- events: each does the same to both programs, and `draw` says the same to both

def one_of(program, draw):
    return draw.choice(list(program.model.parameters()))


@torch.no_grad()
def copies_a_weight(program, draw):
    one_of(program, draw).copy_(torch.tensor(draw.uniform(-0.2, 0.2)))


def replaces_a_weight(program, draw):
    p = one_of(program, draw)
    p.data = torch.randn(p.shape) * 0.2


@torch.no_grad()
def averages_weights(program, draw):
    program.model.middle[1].weight.lerp_(program.model.middle[0].weight, 0.3)


def cuts_weights_from_one_vector(program, draw):
    vector = nn.utils.parameters_to_vector(program.model.parameters()).detach()
    nn.utils.vector_to_parameters(vector * 0.99, program.model.parameters())


def freezes_or_thaws(program, draw):
    p = one_of(program, draw)
    if sum(each.requires_grad for each in program.model.parameters()) > 3 or not p.requires_grad:
        p.requires_grad_(not p.requires_grad)


def sets_the_rate(program, draw):
    program.optimizer.param_groups[-1]["lr"] = draw.choice([0.02, 0.005, 0.0, 0.03])


def sets_the_decay(program, draw):
    program.optimizer.param_groups[0]["weight_decay"] = draw.choice([0.0, 0.1, 0.2])


def sets_momentum(program, draw):
    group = program.optimizer.param_groups[0]
    if "betas" in group:
        group["betas"] = (draw.choice([0.5, 0.9]), 0.95)
    elif not group["nesterov"]:
        group["momentum"] = draw.choice([0.5, 0.9])


def replaces_a_buffer(program, draw):
    setattr(program.model, draw.choice(["mask", "shift"]), torch.rand(4))


def writes_to_a_buffer(program, draw):
    program.model.mask.copy_(torch.rand(4))


def changes_mode(program, draw):
    module = draw.choice([program.model, program.model.norm])
    module.train(not module.training)


def sets_a_number(program, draw):
    program.model.scale = draw.choice([1.0, 0.9, 0.8])


def clears_the_state(program, draw):
    program.optimizer.state.clear()


def drops_a_state(program, draw):
    program.optimizer.state.pop(one_of(program, draw), None)


def halves_the_state(program, draw):
    for value in program.optimizer.state.get(one_of(program, draw), {}).values():
        if isinstance(value, torch.Tensor) and value.dim() > 0:
            value.mul_(0.5)


def counts_anew(program, draw):
    state = program.optimizer.state.get(one_of(program, draw), {})
    if "step" in state:
        state["step"] = torch.tensor(3.0)


def saves(program, draw):
    file = io.BytesIO()
    torch.save([program.model.state_dict(), program.optimizer.state_dict()], file)
    program.saved = len(list(program.model.parameters())), file.getvalue()


def loads(program, draw):
    count, saved = getattr(program, "saved", (None, None))
    if count == len(list(program.model.parameters())):
        weights, state = torch.load(io.BytesIO(saved))
        program.model.load_state_dict(weights)
        program.optimizer.load_state_dict(state)


def replaces_a_layer(program, draw):
    at = draw.randrange(2)
    before, now = program.model.middle[at], nn.Linear(6, 6)
    program.model.middle[at] = now
    for group in program.optimizer.param_groups:
        names = {id(before.weight): now.weight, id(before.bias): now.bias}
        group["params"] = list({id(q): q for q in (
            names.get(id(p), p) for p in group["params"])}.values())
    for p in before.parameters():  # else state_dict() has a state of no group's parameter
        program.optimizer.state.pop(p, None)


def ties_two_layers(program, draw):
    program.model.middle[1].weight = program.model.middle[0].weight


def exchanges_layers(program, draw):
    layers = program.model.middle
    layers[0], layers[1] = layers[1], layers[0]


def adds_a_layer(program, draw):
    if len(program.model.middle) < 4:
        layer = nn.Linear(6, 6)
        program.model.middle.append(layer)
        program.optimizer.add_param_group({"params": list(layer.parameters())})


def hooks_a_layer(program, draw):
    handle = getattr(program, "handle", None)
    if handle is not None:
        handle.remove()
        program.handle = None
    else:
        program.handle = program.model.first.register_forward_hook(lambda m, x, y: 1.1 * y)


def looks(program, draw):
    with torch.no_grad():
        program.model(torch.randn(3, 4))


def steps_eagerly(program, draw):
    if program.calls % program.options["accumulate"] == 0:
        program.model(torch.randn(5, 4)).square().mean().backward()
        program.optimizer.step()
        program.optimizer.zero_grad()


def makes_the_step_anew(program, draw):
    if program.calls % program.options["accumulate"] == 0:
        program.step = None


def fails(program, draw):
    for run in (program.model, program.step):
        try:
            run(torch.randn(3, 5))
        except (RuntimeError, TypeError):
            pass


EVENTS = [
    copies_a_weight, replaces_a_weight, averages_weights, cuts_weights_from_one_vector,
    freezes_or_thaws, sets_the_rate, sets_the_decay, sets_momentum, replaces_a_buffer,
    writes_to_a_buffer, changes_mode, sets_a_number, clears_the_state, drops_a_state,
    halves_the_state, counts_anew, saves, loads, replaces_a_layer, ties_two_layers,
    exchanges_layers, adds_a_layer, hooks_a_layer, looks, steps_eagerly, makes_the_step_anew, fails,
]


def run(seed, steps=12):
    """Runs a seed; raises AssertionError where a step differs from eager torch."""
    draw = random.Random(seed)
    accumulate, happened = draw.choice([1, 1, 1, 2, 3]), []

    def change(program, i):
        program.calls = i
        draw = random.Random(f"{seed} {i}")
        for event in draw.choices(EVENTS, k=draw.choice([0, 1, 1, 2]) if i > 0 else 0):
            happened.append(f"{i}: {event.__name__}")
            event(program, draw)

    torch._dynamo.reset()
    torch.manual_seed(seed)
    model, make = Net(draw.randrange(4)), draw.choice(OPTIMIZERS)
    try:
        check(model, change, make=make, steps=steps, accumulate=accumulate,
              rows=lambda i: random.Random(f"{seed} {i} rows").choice([4, 4, 4, 5]),
              clip_norm=draw.choice([None, None, 0.1]))
    except Exception as error:
        events = "; ".join(happened[::2])  # each came in both programs
        raise AssertionError(f"seed {seed}, after {events}: {error}") from error


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=50)
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    failures, begin = 0, time.monotonic()
    for seed in range(options.seed, options.seed + options.count):
        try:
            run(seed)
        except AssertionError as error:
            failures += 1
            print(error, flush=True)
            if options.count == 1:
                traceback.print_exception(error.__cause__)
    seconds = time.monotonic() - begin
    print(f"{options.count} programs, {failures} failures, {seconds:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
