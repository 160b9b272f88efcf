"""Programs that train a model by eager torch and by a step, and compare what they end with."""

import copy

import torch

import weft.torch


class Program:
    """A model, its loss and its optimizer, trained by eager torch or by a step."""

    def __init__(self, model, make, loss, **options):
        self.model, self.loss = model, loss
        self.optimizer = make([p for p in model.parameters() if p.requires_grad])
        self.options, self.step, self.micro = options, None, 0

    def eager(self, x):
        every = self.options.get("accumulate", 1)
        loss = self.loss(self.model(x))
        (loss / every).backward()
        self.micro += 1
        if self.micro % every == 0:
            if (most := self.options.get("clip_norm")) is not None:
                torch.nn.utils.clip_grad_norm_(
                    [p for group in self.optimizer.param_groups for p in group["params"]], most)
            self.optimizer.step()
            self.optimizer.zero_grad()
        return loss.detach()

    def weft(self, x):
        if self.step is None:
            self.step = weft.torch.step(self.model, self.loss, self.optimizer, **self.options)
        return self.step(x)


def check(model, change, make=lambda p: torch.optim.SGD(p, lr=0.1), loss=None, steps=6,
          rows=lambda i: 4, **options):
    """Trains by both, with change(program, i) before each step, and compares losses, weights and
    the optimizer's state."""
    torch.manual_seed(1)
    loss = loss or (lambda y: y.square().mean())
    ours = Program(copy.deepcopy(model), make, copy.deepcopy(loss), **options)
    other = Program(model, make, loss, **options)
    for i in range(steps):
        x = torch.randn(rows(i), 4)
        for program in (ours, other):
            torch.manual_seed(i)
            change(program, i)
        torch.testing.assert_close(ours.weft(x), other.eager(x), msg=lambda said: f"loss of step {i}: {said}")
    for (name, p), q in zip(ours.model.state_dict().items(), other.model.state_dict().values()):
        torch.testing.assert_close(p, q, msg=lambda said: f"{name}: {said}")
    for p, q in zip(ours.model.parameters(), other.model.parameters()):
        mine, wanted = ours.optimizer.state.get(p, {}), other.optimizer.state.get(q, {})
        for name, value in wanted.items():
            if value is not None:
                torch.testing.assert_close(
                    mine[name], value, msg=lambda said: f"{name}: {said}", check_dtype=False)
    return ours


def nothing(program, i):
    pass


def adam(parameters):
    return torch.optim.Adam(parameters, lr=0.05)
