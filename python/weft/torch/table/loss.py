"""Losses and their backward operations."""

from ..rules import Unsupported, cast, gradient, number, rank, reduced, rule, torch, w

aten = torch.ops.aten

NONE, MEAN, SUM = 0, 1, 2  # torch's numbers of the reductions


# ---- losses of a prediction and a target

def loss_rules(name, loss):
    """Registers a loss and its backward operation, whose gradient is that of the prediction."""

    def forward(call, x, target, *args, **options):
        x, target = cast(x, call.dtype), cast(target, call.dtype)  # integers beside floats, too
        return loss(x, target, *args, **options)

    def backward(call, dy, x, target, *args, **options):
        def of_prediction(prediction):
            value = loss(prediction, cast(target, x.dtype), *args, **options)
            return cast(value, dy.dtype)

        return cast(gradient(of_prediction, [x], dy)[0], call.dtype)

    rule(getattr(aten, name).default)(forward)
    rule(getattr(aten, name + "_backward").default)(backward)


def mse(x, target, reduction=MEAN):
    return reduced(w.square(w.sub(x, target)), reduction)


def huber(x, target, reduction=MEAN, delta=1.0):
    size = w.abs(w.sub(x, target))
    line = w.mul(w.sub(size, 0.5 * delta), float(delta))
    curve = w.mul(w.square(size), 0.5)
    return reduced(w.select(w.less(size, float(delta)), curve, line), reduction)


def smooth_l1(x, target, reduction=MEAN, beta=1.0):
    if beta == 0:
        return reduced(w.abs(w.sub(x, target)), reduction)
    return w.div(huber(x, target, reduction, beta), float(beta))


def binary_cross_entropy(x, target, weight=None, reduction=MEAN):
    loss = w.binary_cross_entropy(x, target, "none")
    return reduced(loss if weight is None else w.mul(loss, weight), reduction)


def soft_margin(x, target, reduction=MEAN):
    return reduced(w.softplus(w.mul(w.neg(target), x)), reduction)


loss_rules("mse_loss", mse)
loss_rules("huber_loss", huber)
loss_rules("smooth_l1_loss", smooth_l1)
loss_rules("binary_cross_entropy", binary_cross_entropy)
loss_rules("soft_margin_loss", soft_margin)


@rule(aten.binary_cross_entropy_with_logits.default)
def binary_cross_entropy_with_logits(call, x, target, weight=None, pos_weight=None, reduction=MEAN):
    target = cast(target, x.dtype)
    if pos_weight is None:
        loss = w.sub(w.softplus(x), w.mul(x, target))
    else:
        of_positives = w.add(w.mul(w.sub(pos_weight, 1.0), target), 1.0)
        loss = w.add(
            w.mul(w.sub(1.0, target), x), w.mul(of_positives, w.softplus(w.neg(x)))
        )
    return cast(reduced(loss if weight is None else w.mul(loss, weight), reduction), call.dtype)


# ---- losses of log probabilities and labels

class Labels:
    """The classes of a batch, beside log probabilities whose axis of classes is last.

    hit is whether a class is the label of its row, weight the weight of the row's label, which is 0
    in rows that are ignored.
    """

    def __init__(self, log_p, labels, weight, ignore_index):
        counts = w.not_equal(labels, ignore_index)
        column = w.unsqueeze(cast(labels, "i64"), -1)
        self.hit = w.equal(column, w.iota(log_p.shape, len(log_p.shape) - 1, "i64"))
        self.weight = cast(counts, log_p.dtype)
        if weight is not None:
            of_label = w.select(self.hit, weight, w.zeros_like(log_p))
            self.weight = w.mul(self.weight, w.sum(of_label, [-1]))

    def loss(self, log_p):
        """Returns the loss of each row, unreduced; ignored rows may hold any labels."""
        at_label = w.sum(w.select(self.hit, log_p, w.zeros_like(log_p)), [-1])
        weighted = w.mul(w.neg(at_label), self.weight)
        return w.select(w.equal(self.weight, 0.0), w.zeros_like(weighted), weighted)


def classes_last(x):
    """Moves torch's axis of classes, which is the second one of a batch, to the end."""
    if rank(x) <= 2:
        return x
    return w.permute(x, [0, *range(2, rank(x)), 1])


def classes_second(x):
    if rank(x) <= 2:
        return x
    return w.permute(x, [0, rank(x) - 1, *range(1, rank(x) - 1)])


@rule(aten.nll_loss_forward.default, aten.nll_loss2d_forward.default)
def nll_loss(call, x, labels, weight, reduction, ignore_index):
    """Returns the loss, and the total weight, which is 0 where there is no mean."""
    log_p = classes_last(x)
    known = Labels(log_p, labels, weight, ignore_index)
    loss = known.loss(log_p)
    if reduction == NONE:
        return loss, w.zeros([], x.dtype)
    total, total_weight = w.sum(loss), w.sum(known.weight)
    return (w.div(total, total_weight) if reduction == MEAN else total), total_weight


@rule(aten.nll_loss_backward.default, aten.nll_loss2d_backward.default)
def nll_loss_backward(call, dy, x, labels, weight, reduction, ignore_index, total_weight):
    log_p = classes_last(x)
    known = Labels(log_p, labels, weight, ignore_index)
    of_row = w.neg(w.mul(w.div(dy, total_weight) if reduction == MEAN else dy, known.weight))
    # Where all rows are ignored the mean divides by 0, and their gradients are still 0.
    of_row = w.select(w.equal(known.weight, 0.0), w.zeros_like(known.weight), of_row)
    dx = w.select(known.hit, w.unsqueeze(of_row, -1), w.zeros_like(log_p))
    return classes_second(dx)


@rule(aten.cross_entropy_loss.default)
def cross_entropy(
    call, x, target, weight=None, reduction=MEAN, ignore_index=-100, label_smoothing=0.0
):
    """Reaches a rule from torch.export alone: AOTAutograd decomposes it."""
    logits = classes_last(x)
    if target.dtype == x.dtype:
        return cross_entropy_of_probabilities(logits, target, weight, reduction, label_smoothing)
    if weight is None:
        names = {NONE: "none", MEAN: "mean", SUM: "sum"}
        loss = w.cross_entropy(logits, target, ignore_index, label_smoothing, names[reduction])
        return cast(loss, call.dtype)
    if label_smoothing:
        raise Unsupported("cross entropy with class weights and label smoothing")
    log_p = w.log_softmax(logits, -1)
    known = Labels(log_p, target, weight, ignore_index)
    if reduction == MEAN:
        return w.div(w.sum(known.loss(log_p)), w.sum(known.weight))
    return reduced(known.loss(log_p), reduction)


def cross_entropy_of_probabilities(logits, target, weight, reduction, smoothing):
    target, classes = classes_last(target), logits.shape[-1]
    if smoothing:
        target = w.add(w.mul(target, 1 - smoothing), smoothing / classes)
    terms = w.mul(w.log_softmax(logits, -1), target)
    loss = w.neg(w.sum(terms if weight is None else w.mul(terms, weight), [-1]))
    return reduced(loss, reduction)


# ---- margins between classes

def multi_margin(x, labels, p=1, margin=1.0, weight=None, reduction=MEAN):
    """Sums over the other classes max(0, margin - x[label] + x[class])^p, divided by classes."""
    rows = x if rank(x) == 2 else w.reshape(x, [1, *x.shape] if rank(x) else [1, 1])
    classes = rows.shape[-1]
    known = Labels(rows, w.reshape(labels, [rows.shape[0]]), weight, -1)
    zero = w.zeros_like(rows)
    at_label = w.sum(w.select(known.hit, rows, zero), [-1], True)
    gap = w.relu(w.add(w.sub(rows, at_label), number(margin, x.dtype)))
    of_class = w.select(known.hit, zero, gap if p == 1 else w.square(gap))
    loss = w.div(w.mul(w.sum(of_class, [-1]), known.weight), float(classes))
    return reduced(loss if rank(x) == 2 else w.reshape(loss, []), reduction)


@rule(aten.multi_margin_loss.default)
def multi_margin_loss(call, x, labels, *args, **options):
    return multi_margin(x, labels, *args, **options)


@rule(aten.multi_margin_loss_backward.default)
def multi_margin_loss_backward(call, dy, x, labels, *args, **options):
    return gradient(lambda v: multi_margin(v, labels, *args, **options), [x], dy)[0]


def multilabel_margin(x, labels, reduction=MEAN):
    """Returns the loss, and which classes are labels: those before the first -1 of their row."""
    flat = rank(x) < 2
    rows = w.reshape(x, [1, -1]) if flat else x
    labels = w.reshape(labels, rows.shape)
    count, classes = rows.shape
    ended = w.greater(w.cumsum(cast(w.less(labels, 0), "i64"), 1), 0)
    label = w.select(ended, w.full([], -1, "i64"), cast(labels, "i64"))
    hit = w.equal(w.unsqueeze(label, 2), w.iota([count, classes, classes], 2, "i64"))
    is_target = w.any(hit, [1])
    # The axes are row, label and the class that the label is compared with.
    at_label = w.sum(w.select(hit, w.unsqueeze(rows, 1), w.zeros([], x.dtype)), [2], True)
    gap = w.relu(w.add(w.sub(w.unsqueeze(rows, 1), at_label), 1.0))
    counted = w.logical_and(
        w.unsqueeze(w.logical_not(ended), 2), w.unsqueeze(w.logical_not(is_target), 1)
    )
    loss = w.div(w.sum(w.select(counted, gap, w.zeros_like(gap)), [1, 2]), float(classes))
    return reduced(w.reshape(loss, []) if flat else loss, reduction), is_target


@rule(aten.multilabel_margin_loss_forward.default)
def multilabel_margin_loss(call, x, labels, reduction):
    loss, is_target = multilabel_margin(x, labels, reduction)
    shape, dtype = call.results[1]
    return loss, cast(w.reshape(is_target, shape), dtype)


@rule(aten.multilabel_margin_loss_backward.default)
def multilabel_margin_loss_backward(call, dy, x, labels, reduction, is_target):
    return gradient(lambda v: multilabel_margin(v, labels, reduction)[0], [x], dy)[0]
