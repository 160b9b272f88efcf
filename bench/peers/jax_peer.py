#!/usr/bin/env python3
"""One workload in JAX (jit, donated state); prints the same JSON line as torch_peer.py.

    python jax_peer.py gpt2 --batch 4 --length 64 --precision bf16
"""
import argparse
import functools
import os
import time

import start
from workloads import WORKLOADS, measure, print_line

before_import = time.perf_counter()
import jax
import jax.numpy as jnp
import numpy as np
import optax

import_seconds = time.perf_counter() - before_import


class Init:
    """Weights by weft's names: from a safetensors file, or random without one."""

    def __init__(self, seed, path=None):
        begin = time.perf_counter()
        self.random = np.random.default_rng(seed)
        self.file = start.read_weights(path) if path else None
        self.untimed = time.perf_counter() - begin if path else 0.0

    def weight(self, name, *shape, std=0.02):
        """Returns a weight in PyTorch's order of axes."""
        if self.file:
            return self.file[name + ".weight"]
        return self.random.standard_normal(shape, dtype=np.float32) * std

    def bias(self, name, size):
        return jnp.asarray(self.file[name + ".bias"]) if self.file else jnp.zeros(size)

    def linear(self, name, inputs, outputs, bias=True, std=0.02):
        weight = {"weight": jnp.asarray(self.weight(name, outputs, inputs, std=std).T)}
        return weight | ({"bias": self.bias(name, outputs)} if bias else {})


def linear(x, p, dtype):
    y = x.astype(dtype) @ p["weight"].astype(dtype)
    return y + p["bias"].astype(dtype) if "bias" in p else y


def layer_norm(x, p):
    centred = x - x.mean(-1, keepdims=True)
    y = centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * p["scale"]
    return y + p["bias"] if "bias" in p else y


def cross_entropy(logits, targets):
    return optax.softmax_cross_entropy_with_integer_labels(logits, targets).mean()


def gpt_parameters(init, layers, width, vocabulary, context, bias):
    def norm():
        return {"scale": jnp.ones(width)} | ({"bias": jnp.zeros(width)} if bias else {})

    def block(name):
        return {"ln1": norm(), "qkv": init.linear(name + "attn.c_attn", width, 3 * width, bias),
                "proj": init.linear(name + "attn.c_proj", width, width, bias), "ln2": norm(),
                "fc": init.linear(name + "c_fc", width, 4 * width, bias),
                "out": init.linear(name + "c_proj", 4 * width, width, bias)}

    return {"wte": jnp.asarray(init.weight("wte", vocabulary, width)),
            "wpe": jnp.asarray(init.weight("wpe", context, width)),
            "ln": norm(), "h": [block(f"h.{i}.") for i in range(layers)]}


def gpt_loss(p, ids, targets, dtype, heads, exact_gelu):
    x = p["wte"][ids] + p["wpe"][:ids.shape[1]]
    for block in p["h"]:
        qkv = jnp.split(linear(layer_norm(x, block["ln1"]), block["qkv"], dtype), 3, -1)
        q, k, v = (part.reshape(*part.shape[:2], heads, -1) for part in qkv)
        y = jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(x.shape)
        x = x + linear(y, block["proj"], dtype).astype(jnp.float32)
        y = jax.nn.gelu(linear(layer_norm(x, block["ln2"]), block["fc"], dtype), not exact_gelu)
        x = x + linear(y, block["out"], dtype).astype(jnp.float32)
    logits = layer_norm(x, p["ln"]).astype(dtype) @ p["wte"].T.astype(dtype)
    return cross_entropy(logits.astype(jnp.float32), targets)


def gpt_task(layers, heads, width, vocabulary, context, bias, exact_gelu):
    def make(init, args):
        parameters = gpt_parameters(init, layers, width, vocabulary, context, bias)
        batch = map(jnp.asarray, start.tokens(args.batch, args.length, vocabulary))
        loss = functools.partial(gpt_loss, heads=heads, exact_gelu=exact_gelu)
        return parameters, loss, tuple(batch), optax.adamw(1e-4, weight_decay=0.1)
    return make


def sgd():
    return optax.chain(optax.add_decayed_weights(1e-4), optax.sgd(0.01, momentum=0.9))


def mlp_task(init, args):
    parameters = {"fc1": init.linear("fc1", 784, 256, std=0.03),
                  "fc2": init.linear("fc2", 256, 10, std=0.06)}

    def loss(p, images, labels, dtype):
        y = linear(jax.nn.relu(linear(images, p["fc1"], dtype)), p["fc2"], dtype)
        return cross_entropy(y.astype(jnp.float32), labels)

    return parameters, loss, tuple(map(jnp.asarray, start.images(args.batch, [784], 10))), sgd()


def mnist_conv_task(init, args):
    """Uses channels-last, which XLA's CPU convolutions prefer."""
    def conv_parameters(name, inputs, outputs):
        weight = init.weight(name, outputs, inputs, 3, 3, std=(9 * inputs)**-0.5)
        return {"weight": jnp.asarray(weight.transpose(2, 3, 1, 0)),
                "bias": init.bias(name, outputs)}

    def conv_relu_pool(x, p, dtype):
        y = jax.lax.conv_general_dilated(x.astype(dtype), p["weight"].astype(dtype), (1, 1),
                                         "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        y = jax.nn.relu(y + p["bias"].astype(dtype))
        return jax.lax.reduce_window(y, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

    def loss(p, images, labels, dtype):
        x = conv_relu_pool(conv_relu_pool(images, p["conv1"], dtype), p["conv2"], dtype)
        x = x.transpose(0, 3, 1, 2).reshape(x.shape[0], -1)  # fc1 expects PyTorch's order
        x = jax.nn.relu(linear(x, p["fc1"], dtype))
        return cross_entropy(linear(x, p["fc2"], dtype).astype(jnp.float32), labels)

    parameters = {"conv1": conv_parameters("conv1", 1, 32),
                  "conv2": conv_parameters("conv2", 32, 64),
                  "fc1": init.linear("fc1", 3136, 128),
                  "fc2": init.linear("fc2", 128, 10, std=0.09)}
    images, labels = start.images(args.batch, [1, 28, 28], 10)
    return parameters, loss, (jnp.asarray(images.transpose(0, 2, 3, 1)), jnp.asarray(labels)), sgd()


TASKS = {
    "gpt2": gpt_task(12, 12, 768, 50257, 1024, bias=True, exact_gelu=False),
    "gpt-char": gpt_task(4, 4, 128, 65, 64, bias=False, exact_gelu=True),
    "mlp": mlp_task,
    "mnist-conv": mnist_conv_task,
}


def train_step(task, init, args):
    """Returns a jitted step whose state is donated; items are tokens or images."""
    parameters, loss_of, batch, optimizer = task(init, args)
    dtype = jnp.bfloat16 if args.precision == "bf16" else jnp.float32
    state = [parameters, optimizer.init(parameters)]

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def update(parameters, moments):
        loss, gradients = jax.value_and_grad(loss_of)(parameters, *batch, dtype)
        changes, moments = optimizer.update(gradients, moments, parameters)
        return optax.apply_updates(parameters, changes), moments, loss

    def step():
        state[0], state[1], loss = update(*state)
        jax.block_until_ready(state[0])
        return loss.item()

    return step, args.batch * (args.length or 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", choices=[*TASKS])
    parser.add_argument("--precision", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--length", type=int)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1337)
    parser.add_argument("--weights", help="initial weights, of weft bench --write-weights")
    args = parser.parse_args()
    # XLA has no option for its number of threads; it starts one per core of the affinity mask.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:args.threads])
    defaults = WORKLOADS[args.workload]
    args.batch, args.length = args.batch or defaults.batch, args.length or defaults.length
    init = Init(args.seed, args.weights)
    step, items = train_step(TASKS[args.workload], init, args)
    numbers = measure(step, items, args.steps or 7, init.untimed)
    print_line({"workload": args.workload, "system": f"JAX {jax.__version__}", "mode": "jax",
                "precision": args.precision, "threads": args.threads, "batch": args.batch,
                "length": args.length} | numbers | {"import_s": round(import_seconds, 3)})


if __name__ == "__main__":
    main()
