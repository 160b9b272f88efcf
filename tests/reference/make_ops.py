"""Values and gradients, in float64, of operations that are easy to get wrong (see README.md)."""
import torch
import torch.nn.functional as F

import formula
from models import integers, uniform


class Table:
    """Collects cases; every input and every upstream gradient takes the next free stream."""

    def __init__(self):
        self.rows, self.stream = [], 3000

    def draw(self, shape, scale=1.0, shift=0.0):
        """Returns a random tensor and the JSON that describes it."""
        stream, self.stream = self.stream, self.stream + 1
        recipe = {"stream": stream, "shape": list(shape), "scale": scale, "shift": shift}
        return uniform(stream, list(shape), scale, shift), recipe

    def add(self, name, function, inputs, constants=None, integer_inputs=None, gradients=True,
            **attributes):
        """Runs `function(**inputs, **constants, **integers, **attributes)`.

        `inputs` are differentiated, `constants` are not; both map a name to a shape or to
        (shape, scale, shift). A function may return one tensor or a dictionary; only entries that
        need a gradient get an upstream one.
        """
        as_tuple = lambda spec: spec if isinstance(spec, tuple) else (spec,)
        drawn, recipes = {}, {}
        for key, spec in {**inputs, **(constants or {})}.items():
            drawn[key], recipes[key] = self.draw(*as_tuple(spec))
        for key in inputs:
            drawn[key].requires_grad_(gradients)
        for key, values in (integer_inputs or {}).items():
            recipes[key] = {"shape": list(values.shape), "values": values.flatten().tolist()}
        results = function(**drawn, **(integer_inputs or {}), **attributes)
        results = results if isinstance(results, dict) else {"output": results}
        row = {"name": name, "attributes": attributes, "inputs": recipes, "outputs": {}}
        total, upstream = 0, {}
        for key, result in results.items():
            row["outputs"][key] = values_of(result)
            if result.requires_grad:
                weight, upstream[key] = self.draw(list(result.shape))
                total = total + (result * weight).sum()
        if upstream:
            row["upstream"] = upstream
            used = [k for k in inputs if drawn[k].requires_grad]
            for key, gradient in zip(used, torch.autograd.grad(total, [drawn[k] for k in used])):
                row["outputs"][f"grad_{key}"] = values_of(gradient)
        self.rows.append(row)


def values_of(tensor):
    assert tensor.isfinite().all()  # JSON has no infinity
    return {"shape": list(tensor.shape), "values": tensor.detach().double().flatten().tolist()}


def convolutions(table):
    def conv2d(input, weight, bias=None, **attributes):
        return F.conv2d(input, weight, bias, **attributes)

    table.add("conv2d", conv2d, {"input": [2, 3, 4, 5], "weight": [2, 3, 3, 3], "bias": [2]},
              stride=1, padding=1, dilation=1, groups=1)
    table.add("conv2d_stride_dilation", conv2d, {"input": [1, 2, 7, 8], "weight": [3, 2, 3, 2]},
              stride=[2, 3], padding=[2, 1], dilation=[2, 3], groups=1)
    table.add("conv2d_groups", conv2d,
              {"input": [1, 4, 5, 5], "weight": [6, 2, 3, 3], "bias": [6]},
              stride=2, padding=1, dilation=1, groups=2)
    table.add("conv2d_depthwise", conv2d, {"input": [1, 3, 4, 5], "weight": [6, 1, 3, 3]},
              stride=1, padding=1, dilation=1, groups=3)
    # (6 + 2*0 - 3) is odd with stride 2, so the last row is never read and has gradient zero.
    table.add("conv2d_unread_edge", conv2d, {"input": [1, 2, 6, 6], "weight": [2, 2, 3, 3]},
              stride=2, padding=0, dilation=1, groups=1)
    table.add("conv_transpose2d",
              lambda input, weight, bias, **a: F.conv_transpose2d(input, weight, bias, **a),
              {"input": [1, 4, 3, 3], "weight": [4, 2, 3, 3], "bias": [4]},
              stride=2, padding=1, output_padding=1, groups=2, dilation=1)


def pools(table):
    image = {"input": [2, 2, 5, 6]}
    table.add("max_pool2d", lambda input, **a: F.max_pool2d(input, **a), image,
              kernel_size=3, stride=2, padding=1, dilation=1, ceil_mode=False)
    for name, include in (("avg_pool2d_count_pad", True), ("avg_pool2d_skip_pad", False)):
        table.add(name, lambda input, **a: F.avg_pool2d(input, **a), image,
                  kernel_size=3, stride=2, padding=1, ceil_mode=False, count_include_pad=include)
    table.add("adaptive_avg_pool2d", lambda input, **a: F.adaptive_avg_pool2d(input, **a), image,
              output_size=[3, 4])


def norms(table):
    def batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps):
        mean, var = running_mean.clone(), running_var.clone()
        y = F.batch_norm(input, mean, var, weight, bias, training, momentum, eps)
        return {"output": y, "new_running_mean": mean, "new_running_var": var}

    for training in (True, False):
        table.add(f"batch_norm_{'train' if training else 'eval'}", batch_norm,
                  {"input": [3, 2, 2, 3], "weight": [2], "bias": [2]},
                  {"running_mean": [2], "running_var": ([2], 0.5, 1.0)},
                  training=training, momentum=0.1, eps=1e-5)
    table.add("group_norm",
              lambda input, weight, bias, **a: F.group_norm(input, weight=weight, bias=bias, **a),
              {"input": [2, 4, 3, 2], "weight": [4], "bias": [4]}, num_groups=2, eps=1e-5)
    table.add("layer_norm",
              lambda input, weight, bias, normalized_shape, eps:
              F.layer_norm(input, normalized_shape, weight, bias, eps),
              {"input": [3, 2, 5], "weight": [5], "bias": [5]}, normalized_shape=[5], eps=1e-5)
    table.add("layer_norm_two_axes",
              lambda input, normalized_shape, eps: F.layer_norm(input, normalized_shape, eps=eps),
              {"input": [3, 2, 4]}, normalized_shape=[2, 4], eps=1e-5)
    table.add("rms_norm",
              lambda input, weight, normalized_shape, eps:
              F.rms_norm(input, normalized_shape, weight, eps),
              {"input": [4, 6], "weight": [6]}, normalized_shape=[6], eps=1e-6)


def activations(table):
    wide = {"input": ([16], 5.0)}  # reaches the tails
    table.add("gelu", lambda input, **a: F.gelu(input, **a), wide, approximate="none")
    table.add("gelu_tanh", lambda input, **a: F.gelu(input, **a), wide, approximate="tanh")
    table.add("silu", lambda input: F.silu(input), wide)
    table.add("mish", lambda input: F.mish(input), wide)
    table.add("elu", lambda input, **a: F.elu(input, **a), wide, alpha=0.7)
    table.add("selu", lambda input: F.selu(input), wide)
    table.add("leaky_relu", lambda input, **a: F.leaky_relu(input, **a), wide, negative_slope=0.2)
    table.add("hardswish", lambda input: F.hardswish(input), wide)
    table.add("glu", lambda input, **a: F.glu(input, **a), {"input": [3, 6]}, dim=-1)
    table.add("softmax", lambda input, **a: F.softmax(input, **a), {"input": ([3, 5], 40.0)},
              dim=0)
    table.add("log_softmax", lambda input, **a: F.log_softmax(input, **a),
              {"input": ([3, 5], 40.0)}, dim=1)


def losses(table):
    labels = integers(2999, [8], 5)
    ignored = labels.clone()
    ignored[[1, 4]] = -100

    def cross_entropy(input, target, **attributes):
        return F.cross_entropy(input, target, **attributes)

    logits = {"input": ([8, 5], 3.0)}
    table.add("cross_entropy", cross_entropy, logits, None, {"target": labels})
    table.add("cross_entropy_ignore_index", cross_entropy, logits, None, {"target": ignored},
              ignore_index=-100)
    table.add("cross_entropy_label_smoothing", cross_entropy, logits, None, {"target": ignored},
              ignore_index=-100, label_smoothing=0.1)
    table.add("cross_entropy_images", cross_entropy, {"input": [2, 3, 2, 2]}, None,
              {"target": integers(2998, [2, 2, 2], 3)})
    table.add("binary_cross_entropy_with_logits",
              lambda input, target, **a: F.binary_cross_entropy_with_logits(input, target, **a),
              {"input": ([3, 4], 30.0)}, {"target": ([3, 4], 0.5, 0.5)})
    pair = ({"input": ([4, 3], 2.0)}, {"target": ([4, 3], 2.0)})
    table.add("mse_loss", lambda input, target: F.mse_loss(input, target), *pair)
    table.add("l1_loss", lambda input, target: F.l1_loss(input, target), *pair)
    table.add("kl_div_batchmean", lambda input, target: F.kl_div(
        F.log_softmax(input, -1), F.softmax(target, -1), reduction="batchmean"), *pair)


def attention(table):
    def heads(q, k, v):
        return {"query": q, "key": k, "value": v}

    def attend(query, key, value, mask=None, **attributes):
        # A nonzero element of a boolean mask means "attends".
        mask = mask.bool() if mask is not None and not mask.is_floating_point() else mask
        return F.scaled_dot_product_attention(query, key, value, mask, **attributes)

    table.add("attention", attend, heads([1, 2, 4, 3], [1, 2, 5, 3], [1, 2, 5, 2]))
    table.add("attention_causal", attend, heads([1, 2, 5, 4], [1, 2, 5, 4], [1, 2, 5, 4]),
              is_causal=True)
    # With fewer queries than keys the causal triangle starts at the upper left corner.
    table.add("attention_causal_rectangular", attend,
              heads([1, 1, 3, 4], [1, 1, 5, 4], [1, 1, 5, 4]), is_causal=True)
    # Query head h uses key head h // 2.
    table.add("attention_grouped_heads", attend,
              heads([1, 4, 3, 4], [1, 2, 3, 4], [1, 2, 3, 4]), is_causal=True, enable_gqa=True)
    table.add("attention_scale_and_bias", attend,
              heads([2, 1, 3, 4], [2, 1, 3, 4], [2, 1, 3, 4]) | {"mask": [3, 3]}, scale=0.3)
    table.add("attention_boolean_mask", attend, heads([1, 1, 3, 4], [1, 1, 4, 4], [1, 1, 4, 4]),
              None, {"mask": torch.tensor([[1, 0, 1, 1], [0, 1, 0, 0], [1, 1, 1, 0]])})


def reductions(table):
    matrix = {"input": [3, 5]}
    for unbiased in (True, False):
        table.add(f"var_{'unbiased' if unbiased else 'biased'}",
                  lambda input, **a: torch.var(input, **a), matrix, dim=1,
                  correction=int(unbiased), keepdim=False)
    table.add("std_unbiased", lambda input, **a: torch.std(input, **a), matrix, dim=0,
              correction=1)
    table.add("logsumexp", lambda input, **a: torch.logsumexp(input, **a),
              {"input": ([3, 5], 900.0)}, dim=1)
    table.add("norm_l2", lambda input, **a: torch.linalg.vector_norm(input, **a), matrix, dim=1)
    table.add("prod", lambda input, **a: torch.prod(input, **a), matrix, dim=1)


def recurrent(table):
    def run(kind, gates):
        def function(input, weight_ih, weight_hh, bias_ih, bias_hh, **states):
            cell = getattr(torch, f"{kind}_cell")
            hidden = (states["h"], states["c"]) if kind == "lstm" else states["h"]
            out = cell(input, hidden, weight_ih, weight_hh, bias_ih, bias_hh)
            return {"h_new": out[0], "c_new": out[1]} if kind == "lstm" else out
        inputs = {"input": [2, 3], "weight_ih": [gates * 4, 3], "weight_hh": [gates * 4, 4],
                  "bias_ih": [gates * 4], "bias_hh": [gates * 4], "h": [2, 4]}
        table.add(f"{kind}_cell", function, inputs | ({"c": [2, 4]} if kind == "lstm" else {}))

    run("lstm", 4)  # gate order: input, forget, cell, output
    run("gru", 3)  # gate order: reset, update, new; the hidden bias of new lies inside the reset


OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {"lr": 0.1}),
    "sgd_momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    "sgd_dampening": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.5}),
    "sgd_weight_decay": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),
    "sgd_nesterov": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True,
                                       "weight_decay": 0.01}),
    "adam": (torch.optim.Adam, {"lr": 0.01, "betas": [0.9, 0.999], "eps": 1e-8}),
    "adam_weight_decay": (torch.optim.Adam, {"lr": 0.01, "betas": [0.9, 0.99], "eps": 1e-8,
                                             "weight_decay": 0.1}),
    "adamw": (torch.optim.AdamW, {"lr": 0.01, "betas": [0.9, 0.99], "eps": 1e-8,
                                  "weight_decay": 0.1}),
}


def optimizers(table):
    """Lists the parameter after each of five steps; each gradient has its own stream."""
    for name, (kind, options) in OPTIMIZERS.items():
        parameter, recipe = table.draw([4])
        parameter.requires_grad_(True)
        optimizer = kind([parameter], **options)
        inputs, outputs = {"parameter": recipe}, {}
        for step in range(5):
            parameter.grad, inputs[f"grad_{step}"] = table.draw([4])
            optimizer.step()
            outputs[f"parameter_{step}"] = values_of(parameter)
        table.rows.append({"name": f"optimizer_{name}", "attributes": options, "inputs": inputs,
                           "outputs": outputs})
    for name, max_norm in (("clips", 1.0), ("leaves", 100.0)):
        inputs, parameters = {}, []
        for key, shape in (("grad_a", [2, 3]), ("grad_b", [4])):
            gradient, inputs[key] = table.draw(shape)
            parameters.append(torch.zeros(shape, dtype=torch.float64, requires_grad=True))
            parameters[-1].grad = gradient
        norm = torch.nn.utils.clip_grad_norm_(parameters, max_norm)
        table.rows.append({
            "name": f"clip_grad_norm_{name}", "attributes": {"max_norm": max_norm},
            "inputs": inputs,
            "outputs": {"norm": values_of(norm), "clipped_a": values_of(parameters[0].grad),
                        "clipped_b": values_of(parameters[1].grad)}})


def softplus(table):
    """These cases are last in the table, so that other cases keep their streams."""
    far = {"input": ([16], 60.0)}  # log(1 + exp(x)) is about exp(x) or x here
    # A high threshold avoids PyTorch's approximation by x, which starts at 20 by default.
    table.add("softplus", lambda input: F.softplus(input, threshold=700), far)
    table.add("log_sigmoid", lambda input: F.logsigmoid(input), far)


def reductions_of_losses(table):
    """Adds losses under each reduction."""
    pair = {"input": ([4, 3], 2.0), "target": ([4, 3], 2.0)}
    probabilities = {"input": ([4, 3], 0.45, 0.5), "target": ([4, 3], 0.5, 0.5)}
    signs = torch.where(integers(2996, [4, 3], 2) == 0, -1, 1)
    labels = integers(2997, [4], 3)
    labels[2] = -100

    def hinge(input, target, reduction):
        losses = (1 - target * input).clamp(min=0)
        return {"mean": losses.mean, "sum": losses.sum, "none": lambda: losses}[reduction]()

    functions = {
        "l1_loss": (F.l1_loss, pair, {}),
        "mse_loss": (F.mse_loss, pair, {}),
        "huber_loss": (F.huber_loss, pair, {"delta": 0.6}),
        "smooth_l1_loss": (F.smooth_l1_loss, pair, {"beta": 0.6}),
        "kl_div": (F.kl_div, {"input": ([4, 3], 2.0, -3.0), "target": ([4, 3], 0.5, 0.6)}, {}),
        "binary_cross_entropy": (F.binary_cross_entropy, probabilities, {}),
        "binary_cross_entropy_with_logits": (F.binary_cross_entropy_with_logits, pair, {}),
    }
    for reduction in ("mean", "sum", "none"):
        for name, (function, inputs, options) in functions.items():
            table.add(f"{name}_{reduction}", function, inputs, reduction=reduction, **options)
        table.add(f"hinge_loss_{reduction}", hinge, {"input": ([4, 3], 2.0)}, None,
                  {"target": signs}, reduction=reduction)
        for name, function in (("cross_entropy", F.cross_entropy), ("nll_loss", F.nll_loss)):
            table.add(f"{name}_{reduction}", function, {"input": ([4, 3], 2.0)}, None,
                      {"target": labels}, ignore_index=-100, reduction=reduction)


def arrays(table):
    """Adds operations that move, sort, reduce and contract."""
    matrix = {"input": [3, 5]}
    for order in (0, 1, 3, 0.5, float("inf"), float("-inf")):
        table.add(f"norm_{order}".replace("-inf", "least").replace("inf", "greatest"),
                  lambda input, **a: torch.linalg.vector_norm(input, order, **a), matrix,
                  gradients=order != 0, dim=0)
    table.add("cumsum", lambda input, **a: torch.cumsum(input, **a), {"input": [2, 21, 2]}, dim=1)
    table.add("tril", lambda input, **a: torch.tril(input, **a), {"input": [2, 3, 4]}, diagonal=1)
    table.add("triu", lambda input, **a: torch.triu(input, **a), {"input": [2, 4, 3]},
              diagonal=-1)
    table.add("tile", lambda input, sizes: input.repeat(sizes), {"input": [2, 3]},
              sizes=[2, 1, 3])
    table.add("repeat", lambda input, **a: torch.repeat_interleave(input, **a), {"input": [2, 3]},
              repeats=3, dim=1)
    table.add("reflect_pad", lambda input, pad: F.pad(input, pad, mode="reflect"),
              {"input": [1, 2, 4, 5]}, pad=[4, 1, 0, 3])
    places = integers(2995, [3, 4], 5)
    table.add("take_along_axis", lambda input, index, **a: torch.gather(input, index=index, **a),
              matrix, None, {"index": places}, dim=1)
    table.add("put_along_axis",
              lambda input, values, index, **a: torch.scatter(input, index=index, src=values, **a),
              {"input": [5, 3], "values": [2, 3]}, None,
              {"index": torch.tensor([[4, 0, 1], [2, 3, 0]])}, dim=0)
    table.add("index_put", lambda input, values, index: input.index_put((index,), values),
              {"input": [5, 2, 2], "values": [3, 2, 2]}, None, {"index": torch.tensor([4, 0, 2])})
    for name, dim, descending in (("sort", 1, False), ("sort_descending", 0, True)):
        table.add(name, lambda input, **a: torch.sort(input, **a)[0], {"input": [4, 5]}, dim=dim,
                  descending=descending)
    for name, largest in (("topk", True), ("topk_least", False)):
        table.add(name, lambda input, **a: torch.topk(input, **a)[0], {"input": [4, 5]}, k=3,
                  dim=0, largest=largest)
    for name, shapes in (("bij,bjk->bik", [[2, 3, 4], [2, 4, 2]]), ("ij,ij->ij", [[3, 2], [3, 2]]),
                         ("ji,kj", [[3, 2], [4, 3]]), ("i,j->ji", [[3], [2]]),
                         ("iij->ji", [[3, 3, 2]]), ("ijk->j", [[2, 3, 2]]), ("ii", [[4, 4]]),
                         ("...ij,...kj->...ik", [[2, 1, 3, 4], [3, 2, 4]]),
                         ("bi,bj,ijk->bk", [[2, 3], [2, 4], [3, 4, 2]]),
                         ("ij,jk,kl->il", [[2, 3], [3, 4], [4, 2]]),
                         ("bhqd,bhkd->bhqk", [[2, 2, 3, 2], [2, 2, 4, 2]]),
                         ("ij,k->i", [[2, 3], [4]]), ("i...,i->...", [[3, 2, 2], [3]])):
        table.add(f"einsum {name}", lambda equation, **operands: torch.einsum(
            equation, list(operands.values())),
            {f"operand{i}": shape for i, shape in enumerate(shapes)}, equation=name)
    image = {"input": [1, 2, 3, 4]}
    for name, size in (("", [5, 7]), ("_whole", [6, 8]), ("_smaller", [2, 2]), ("_part", [1, 2])):
        table.add(f"nearest{name}", lambda input, **a: F.interpolate(input, **a), image, size=size,
                  mode="nearest")
    for align in (False, True):
        for name, shape, size, mode in (("linear", [2, 1, 4], [7], "linear"),
                                        ("bilinear", [1, 2, 3, 4], [5, 3], "bilinear"),
                                        ("bilinear_one", [1, 2, 3, 4], [1, 8], "bilinear"),
                                        ("trilinear", [1, 1, 2, 3, 2], [3, 2, 4], "trilinear")):
            table.add(f"{name}{'_corners' if align else ''}",
                      lambda input, **a: F.interpolate(input, **a), {"input": shape}, size=size,
                      mode=mode, align_corners=align)


def transposed(table):
    table.add("conv_transpose1d", lambda input, weight, **a: F.conv_transpose1d(
        input, weight, **a), {"input": [2, 3, 4], "weight": [3, 2, 3]}, stride=3, padding=2,
              output_padding=2, groups=1, dilation=2)


def volumes(table):
    def deconvolve(input, weight, bias=None, **a):
        return F.conv_transpose3d(input, weight, bias, **a)

    table.add("conv_transpose3d", deconvolve,
              {"input": [2, 4, 2, 3, 2], "weight": [4, 3, 2, 3, 2], "bias": [6]},
              stride=[2, 1, 3], padding=[1, 0, 1], output_padding=[1, 0, 2], groups=2,
              dilation=[1, 2, 1])
    table.add("conv_transpose3d_dilated", deconvolve,
              {"input": [1, 2, 3, 2, 2], "weight": [2, 1, 3, 2, 1]}, stride=[3, 2, 1],
              padding=[2, 0, 0], output_padding=[2, 1, 0], groups=1, dilation=[2, 1, 1])
    volume = {"input": [2, 2, 4, 5, 6]}
    window = {"kernel_size": [2, 3, 3], "stride": [2, 2, 1], "padding": [1, 1, 0],
              "ceil_mode": False}
    table.add("max_pool3d", lambda input, **a: F.max_pool3d(input, **a), volume, dilation=1,
              **window)
    for name, include in (("avg_pool3d_count_pad", True), ("avg_pool3d_skip_pad", False)):
        table.add(name, lambda input, **a: F.avg_pool3d(input, **a), volume,
                  count_include_pad=include, **window)


def document():
    table = Table()
    for family in (convolutions, pools, norms, activations, losses, attention, reductions,
                   recurrent, optimizers, softplus, reductions_of_losses, arrays, transposed, volumes):
        family(table)
    return {"made_by": f"PyTorch {torch.__version__}", "dtype": "float64",
            "formula": "README.md: inputs and upstream gradients are "
                       "uniform(stream, index, scale) + shift",
            "check": formula.check(), "cases": table.rows}
