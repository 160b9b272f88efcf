"""Writes distillation.json: the loss of a distilled perceptron and its gradients, by PyTorch in float64.

The student has 64 inputs, 6 hidden units and 4 classes, the teacher 9 hidden units. The loss is that of
PyTorch's tutorial on knowledge distillation (kl_div with batchmean times T^2) and of FitNets (mean squared
error of the hidden layers' results, the student's projected), with the weights of weft's recipe. Row 2 has
no label (-100). Run: python tests/reference/make_distillation.py
"""
import json
import pathlib

import torch
from torch.nn.functional import cross_entropy, kl_div, linear, mse_loss

torch.set_default_dtype(torch.float64)
TEMPERATURE, ALPHA, FEATURE_WEIGHT = 3.0, 0.3, 0.7
LABELS = [0, 3, -100, 1, 2]


def numbers(shape, seed):
    """The elements of a tensor, which tests/train/distillation_test.cpp computes, too."""
    count = torch.Size(shape).numel()
    return torch.tensor([((i * 7919 + seed * 104729) % 1009 - 504) / 2048 for i in range(count)]).reshape(shape)


def main():
    inputs = numbers((5, 64), 9) * 4
    names = ["1.weight", "1.bias", "3.weight", "3.bias", "projection.weight", "projection.bias"]
    shapes = [(6, 64), (6,), (4, 6), (4,), (9, 6), (9,)]
    student = {name: numbers(shape, seed).requires_grad_() for seed, (name, shape) in enumerate(zip(names, shapes))}
    teacher = [numbers(shape, 20 + seed) for seed, shape in enumerate([(9, 64), (9,), (4, 9), (4,)])]

    hidden = linear(inputs, student["1.weight"], student["1.bias"])
    logits = linear(torch.relu(hidden), student["3.weight"], student["3.bias"])
    teacher_hidden = linear(inputs, teacher[0], teacher[1])
    teacher_logits = linear(torch.relu(teacher_hidden), teacher[2], teacher[3])

    labels = torch.tensor(LABELS)
    counts = labels != -100
    hard = cross_entropy(logits, labels, ignore_index=-100)
    soft = kl_div(torch.log_softmax(logits[counts] / TEMPERATURE, -1),
                  torch.softmax(teacher_logits[counts] / TEMPERATURE, -1), reduction="batchmean") * TEMPERATURE**2
    features = mse_loss(linear(hidden, student["projection.weight"], student["projection.bias"]), teacher_hidden)
    loss = ALPHA * hard + (1 - ALPHA) * soft + FEATURE_WEIGHT * features
    loss.backward()
    result = {"temperature": TEMPERATURE, "alpha": ALPHA, "feature_weight": FEATURE_WEIGHT, "labels": LABELS,
              "loss": loss.item(), "gradients": {name: value.grad.flatten().tolist() for name, value in student.items()}}
    path = pathlib.Path(__file__).with_name("distillation.json")
    path.write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
