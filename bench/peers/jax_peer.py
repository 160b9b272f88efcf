#!/usr/bin/env python3
"""One workload in JAX (jit, donated state); prints the same JSON line as torch_peer.py.

    python jax_peer.py gpt2 --batch 4 --length 64 --precision bf16
"""
import argparse
import functools
import os
import time

from workloads import WORKLOADS, measure, print_line

before_import = time.perf_counter()
import jax
import jax.numpy as jnp
import numpy as np
import optax

import_seconds = time.perf_counter() - before_import


class Init:
    """Random weights with one generator, so that a run can be repeated."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)

    def normal(self, *shape, std=0.02):
        return jnp.asarray(self.random.standard_normal(shape, dtype=np.float32) * std)

    def linear(self, inputs, outputs, bias=True, std=0.02):
        weight = {"weight": self.normal(inputs, outputs, std=std)}
        return weight | ({"bias": jnp.zeros(outputs)} if bias else {})


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

    def block():
        return {"ln1": norm(), "qkv": init.linear(width, 3 * width, bias),
                "proj": init.linear(width, width, bias), "ln2": norm(),
                "fc": init.linear(width, 4 * width, bias),
                "out": init.linear(4 * width, width, bias)}

    return {"wte": init.normal(vocabulary, width), "wpe": init.normal(context, width),
            "ln": norm(), "h": [block() for _ in range(layers)]}


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
        shape = (args.batch, args.length)
        ids, targets = (jnp.asarray(init.random.integers(0, vocabulary, shape)) for _ in range(2))
        loss = functools.partial(gpt_loss, heads=heads, exact_gelu=exact_gelu)
        return parameters, loss, (ids, targets), optax.adamw(1e-4, weight_decay=0.1)
    return make


def sgd():
    return optax.chain(optax.add_decayed_weights(1e-4), optax.sgd(0.1, momentum=0.9))


def image_batch(init, args, *shape):
    images = init.normal(args.batch, *shape, std=1.0)
    return images, jnp.asarray(init.random.integers(0, 10, args.batch))


def mlp_task(init, args):
    parameters = {"fc1": init.linear(784, 256, std=0.03), "fc2": init.linear(256, 10, std=0.06)}

    def loss(p, images, labels, dtype):
        y = linear(jax.nn.relu(linear(images, p["fc1"], dtype)), p["fc2"], dtype)
        return cross_entropy(y.astype(jnp.float32), labels)

    return parameters, loss, image_batch(init, args, 784), sgd()


def mnist_conv_task(init, args):
    """Channels-last, which XLA's CPU convolutions want."""
    def conv_parameters(inputs, outputs):
        return {"weight": init.normal(3, 3, inputs, outputs, std=(9 * inputs)**-0.5),
                "bias": jnp.zeros(outputs)}

    def conv_relu_pool(x, p, dtype):
        y = jax.lax.conv_general_dilated(x.astype(dtype), p["weight"].astype(dtype), (1, 1),
                                         "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        y = jax.nn.relu(y + p["bias"].astype(dtype))
        return jax.lax.reduce_window(y, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

    def loss(p, images, labels, dtype):
        x = conv_relu_pool(conv_relu_pool(images, p["conv1"], dtype), p["conv2"], dtype)
        x = jax.nn.relu(linear(x.reshape(x.shape[0], -1), p["fc1"], dtype))
        return cross_entropy(linear(x, p["fc2"], dtype).astype(jnp.float32), labels)

    parameters = {"conv1": conv_parameters(1, 32), "conv2": conv_parameters(32, 64),
                  "fc1": init.linear(3136, 128), "fc2": init.linear(128, 10, std=0.09)}
    return parameters, loss, image_batch(init, args, 28, 28, 1), sgd()


TASKS = {
    "gpt2": gpt_task(12, 12, 768, 50257, 1024, bias=True, exact_gelu=False),
    "gpt-char": gpt_task(4, 4, 128, 65, 64, bias=False, exact_gelu=True),
    "mlp": mlp_task,
    "mnist-conv": mnist_conv_task,
}


def train_step(task, args):
    """A jitted step whose state is donated; items are tokens or images."""
    parameters, loss_of, batch, optimizer = task(Init(args.seed), args)
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
    args = parser.parse_args()
    # XLA has no switch for its threads; it starts as many as it may use cores.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:args.threads])
    defaults = WORKLOADS[args.workload]
    args.batch, args.length = args.batch or defaults.batch, args.length or defaults.length
    step, items = train_step(TASKS[args.workload], args)
    numbers = measure(step, items, args.steps or 7)
    print_line({"workload": args.workload, "system": f"JAX {jax.__version__}", "mode": "jax",
                "precision": args.precision, "threads": args.threads, "batch": args.batch,
                "length": args.length} | numbers | {"import_s": round(import_seconds, 3)})


if __name__ == "__main__":
    main()
