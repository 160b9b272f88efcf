"""Functions with derivatives of their own, which several tests apply."""

import torch


class Doubling(torch.autograd.Function):
    """Returns x, and twice the gradient of the result as that of x."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, dy):
        return 2 * dy
