"""torch.compile(backend="weft") beside eager torch: numbers, memory, and what torch users try."""

import copy
import gc
import threading
import warnings
import weakref

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import weft
import weft.torch

# ---- models


class Branching(nn.Module):
    """Has batch norm, views, shared weights, a residual, and an output that is a view."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1, bias=False)  # batch norm takes it out
        self.norm = nn.BatchNorm2d(8)
        self.head = nn.Linear(8 * 8 * 8, 10)

    def forward(self, x):
        y = F.relu(self.norm(self.conv(x)))
        y = y + F.relu(self.norm(self.conv(x))).flip(3)
        return self.head(y.flatten(1)), y[:, 0]


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 32)
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.head = nn.Linear(32, 50)
        self.head.weight = self.embedding.weight

    def forward(self, ids):
        return self.head(self.layer(self.embedding(ids)))


def small():
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))


def compiled(model, **options):
    torch._dynamo.reset()
    weft.torch.report().reset()
    return torch.compile(model, backend=weft.torch.backend, options=options or None)


def check_same(model, *batch, loss=lambda output: output.square().mean(), tolerance=2e-5):
    """Checks the loss, all gradients and all buffers beside eager torch."""
    torch.manual_seed(0)
    eager = copy.deepcopy(model)
    expected = loss(eager(*batch))
    expected.backward()
    got = loss(compiled(model)(*batch))
    got.backward()
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)
    for (name, p), q in zip(eager.named_parameters(), model.parameters()):
        assert (p.grad is None) == (q.grad is None), name
        if p.grad is not None:
            scale = max(p.grad.abs().max().item(), 1e-3)
            assert (p.grad - q.grad).abs().max().item() <= tolerance * scale, name
    for (name, p), q in zip(eager.named_buffers(), model.named_buffers()):
        torch.testing.assert_close(q[1], p, rtol=1e-5, atol=1e-6, msg=name)
    assert not weft.torch.report().fallbacks
    return weft.torch.report()


# ---- numbers


def test_a_small_net_has_eager_gradients():
    report = check_same(small(), torch.randn(8, 16))
    assert report.plans == 2


def test_batch_norm_views_and_shared_modules():
    check_same(Branching(), torch.randn(4, 3, 8, 8), loss=lambda o: o[0].square().mean() + o[1].sum())


def test_attention_and_tied_weights():
    ids = torch.randint(0, 50, (3, 12))
    check_same(Attention(), ids, loss=lambda o: F.cross_entropy(o.flatten(0, 1), ids.flatten()))


def test_inference_without_gradients():
    model = Branching().eval()
    x = torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        expected = model(x)
        got = compiled(model)(x)
    for a, b in zip(got, expected):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
    assert weft.torch.report().graphs[0].kind == "inference"


def test_weights_that_change_are_seen():
    model = small().eval()
    call = compiled(model)
    x = torch.randn(4, 16)
    with torch.no_grad():
        call(x)
        model[0].weight.mul_(2)
        torch.testing.assert_close(call(x), model(x))
        model.load_state_dict(small().state_dict())
        torch.testing.assert_close(call(x), model(x))


def test_training_follows_eager_for_twenty_steps():
    torch.manual_seed(1)
    model = Branching()
    eager = copy.deepcopy(model)
    call = compiled(model)
    batches = [(torch.randn(8, 3, 8, 8), torch.randint(0, 10, (8,))) for _ in range(20)]
    losses = []
    for net, forward in ((eager, eager), (model, call)):
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
        curve = []
        for x, y in batches:
            optimizer.zero_grad()
            loss = F.cross_entropy(forward(x)[0], y)
            loss.backward()
            optimizer.step()
            curve.append(loss.item())
        losses.append(curve)
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)


def test_integers_that_f64_does_not_hold():
    wide = 2**53 + 1

    def f(x):
        return (
            x + wide, x == wide, x.clamp(max=wide), x & wide, wide - x, torch.full_like(x, wide),
            torch.where(x > 0, wide, x), torch.add(x, x, alpha=wide), torch.arange(wide, wide + 3),
            x.index_fill(0, torch.tensor([0]), wide))

    x = torch.tensor([wide, -wide, 3, 2**62 + 1])
    for got, expected in zip(compiled(f)(x), f(x)):
        assert torch.equal(got, expected)


def test_powers_of_integers():
    def f(x, e):
        return x**2, x**63, x**64, x**101, x**e, 3**e

    x, e = torch.tensor([2, -3, 7, -1, 1]), torch.tensor([64, 200, 70, 2**40 + 1, 0])
    for got, expected in zip(compiled(f)(x, e), f(x, e)):
        assert torch.equal(got, expected)
    small_type = torch.tensor([2, 3, -3], dtype=torch.int8)
    assert torch.equal(compiled(lambda x: x**100)(small_type), small_type**100)


# ---- memory


def test_inputs_and_labels_stay_as_they_are():
    model = small()
    x, y = torch.randn(8, 16), torch.randint(0, 4, (8,))
    held = x.clone(), y.clone()
    F.cross_entropy(compiled(model)(x), y).backward()
    assert torch.equal(x, held[0]) and torch.equal(y, held[1])


def test_results_of_earlier_runs_stay_as_they_are():
    call = compiled(small().eval())
    with torch.no_grad():
        first = call(torch.ones(3, 16))
        kept = first.clone()
        call(torch.zeros(3, 16))
    assert torch.equal(first, kept)


@pytest.mark.parametrize("form", ["transposed", "sliced", "expanded", "unaligned", "channels_last"])
def test_tensors_in_any_memory(form):
    x = {
        "transposed": torch.randn(16, 8).t(),
        "sliced": torch.randn(8, 32)[:, ::2],
        "expanded": torch.randn(1, 16).expand(8, 16),
        "unaligned": torch.randn(8 * 16 + 1)[1:].view(8, 16),
        "channels_last": torch.randn(2, 4, 2, 8).to(memory_format=torch.channels_last)
        .flatten(0, 1).reshape(8, 16),
    }[form]
    model = small().eval()
    with torch.no_grad():
        torch.testing.assert_close(compiled(model)(x), model(x), rtol=1e-5, atol=1e-6)


def test_channels_last_results_keep_their_strides():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()).to(memory_format=torch.channels_last).eval()
    x = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
    with torch.no_grad():
        expected, got = model(x), compiled(model)(x)
    assert got.stride() == expected.stride()
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)


def test_in_place_updates_of_inputs():
    def f(x, y):
        x.add_(1)
        return x * y, x

    x, y = torch.randn(5), torch.randn(5)
    twin = x.clone()
    expected = f(twin, y)
    got = compiled(f)(x, y)
    torch.testing.assert_close(got, expected)
    torch.testing.assert_close(x, twin)
    assert got[1].data_ptr() == x.data_ptr()


def test_outputs_that_alias_inputs_and_each_other():
    def f(x):
        y = x * 2
        return x.view(-1), y, y.t(), y

    x = torch.randn(3, 4)
    got = compiled(f)(x)
    assert got[0].data_ptr() == x.data_ptr()
    assert got[1].data_ptr() == got[2].data_ptr() == got[3].data_ptr()
    torch.testing.assert_close(got[2], (x * 2).t())


def test_views_of_inputs_that_overlap():
    """AOTAutograd hands over the memory that both share, and a result's offset says its place."""

    def f(x, y):
        return x.mul_(2), y + 1

    memory = torch.randn(24)
    twin = memory.clone()
    got, expected = (
        call(m[3:12].view(3, 3).t(), m[5:23].view(3, 6)[:, :3])
        for call, m in ((compiled(f), memory), (f, twin)))
    for a, b in zip(got, expected):
        torch.testing.assert_close(a, b)
    torch.testing.assert_close(memory, twin)
    assert got[0].data_ptr() == memory[3:].data_ptr()


def test_nested_tensors_run_in_torch():
    rows = torch.nested.nested_tensor(
        [torch.randn(2, 4), torch.randn(3, 4)], layout=torch.jagged)
    layer = nn.Linear(4, 4)
    call = compiled(layer)
    with pytest.warns(UserWarning, match="runs in torch: a nested tensor"):
        got = call(rows)
    for a, b in zip(got.unbind(), layer(rows).unbind()):
        torch.testing.assert_close(a, b)
    assert weft.torch.report().graphs[0].in_plans == 0


def test_pieces_are_memory_of_their_tensor():
    def f(x):
        first, second = x.split([1, 2])
        return first, second * 2, x.unbind()[2], x[:, :1].expand(3, 5)

    x = torch.randn(3, 2, requires_grad=True)
    got, expected = compiled(f)(x), f(x)
    for a, b in zip(got, expected):
        torch.testing.assert_close(a, b)
        assert (a.data_ptr() == b.data_ptr()) == (b._base is x)


def test_tensors_without_elements_of_any_strides():
    x = torch.empty(0).as_strided((2, 0, 3), (7, 5, 9))
    call = compiled(lambda x: x + 1)
    assert call(x).shape == call(torch.empty(2, 0, 3)).shape == (2, 0, 3)


def test_empty_and_scalar_tensors():
    def f(x, s):
        return x * s, x.sum() + s, torch.cat([x, x])

    for x in (torch.randn(0, 3), torch.randn(2, 3)):
        s = torch.tensor(2.5)
        torch.testing.assert_close(compiled(f)(x, s), f(x, s))


# ---- random numbers


def test_dropout_follows_torch_seed():
    model = nn.Sequential(nn.Linear(64, 256), nn.Dropout(0.5))
    call = compiled(model)
    x = torch.randn(16, 64)
    torch.manual_seed(3)
    first, second = call(x).detach(), call(x).detach()
    torch.manual_seed(3)
    assert torch.equal(call(x).detach(), first)
    assert not torch.equal(first, second)
    assert 0.4 < (first == 0).float().mean().item() < 0.6


def test_the_backward_pass_has_the_mask_of_the_forward_pass():
    layer = nn.Dropout(0.5)
    x = torch.randn(1000, requires_grad=True)
    y = compiled(layer)(x)
    y.sum().backward()
    assert torch.equal(x.grad == 0, y == 0)


# ---- sizes, breaks and what weft lacks


def test_new_sizes_are_planned_without_dynamo():
    model = small().eval()
    call = compiled(model)
    with torch.no_grad():
        for rows in (4, 7, 9, 12, 9, 4, 30):
            x = torch.randn(rows, 16)
            torch.testing.assert_close(call(x), model(x), rtol=1e-5, atol=1e-6)
    assert len(weft.torch.report().graphs) == 2  # the first size, and a symbolic one


def test_many_sizes_are_bounded_and_said_once():
    model = small().eval()
    call = compiled(model, sizes=3)
    with torch.no_grad(), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for rows in [*range(2, 12), 4]:
            x = torch.randn(rows, 16)
            torch.testing.assert_close(call(x), model(x), rtol=1e-5, atol=1e-6)
    assert sum("[weft]" in str(w.message) for w in said) == 1
    symbolic = weft.torch.report().graphs[-1]
    # The first size had a graph of its own; 4 was planned before the limit.
    assert (symbolic.sizes, symbolic.in_torch) == (3, 6)
    assert "torch computes 6 calls of" in str(weft.torch.report())


def test_sizes_beyond_the_limit_can_be_errors():
    call = compiled(small().eval(), sizes=1, fallback="error")
    with torch.no_grad():
        for rows in (2, 3):
            call(torch.randn(rows, 16))
        with pytest.raises(Exception, match="more than 1 sizes"):
            call(torch.randn(4, 16))


def test_buckets_pad_batches_to_few_sizes():
    embed, head = torch.nn.Embedding(50, 8), torch.nn.Linear(8, 50)

    def loss_of(batch):
        x = embed(batch["ids"]) * batch["mask"].unsqueeze(-1)
        return F.cross_entropy(head(x).flatten(0, 1), batch["labels"].flatten())

    call = compiled(loss_of)
    bucketed = weft.torch.buckets([8, 16], pad={"labels": -100})
    for length in range(3, 17):
        ids = torch.randint(0, 50, (4, length))
        batch = {"ids": ids, "mask": torch.ones(4, length), "labels": ids, "rows": torch.arange(4)}
        padded = bucketed(batch)
        assert padded["ids"].shape == (4, 8 if length <= 8 else 16)
        torch.testing.assert_close(call(padded), loss_of(batch), rtol=1e-5, atol=1e-6)
    plans = [g for g in weft.torch.report().graphs if g.kind == "forward"]
    assert sum(g.plans for g in plans) <= 2
    assert bucketed((torch.zeros(3, 8), [torch.zeros(3)]))[1][0].shape == (3,)
    for bad, message in [
        (lambda: bucketed(torch.zeros(4, 17)), "largest size is 16. Got 17 along axis 1"),
        (lambda: bucketed([torch.zeros(4, 5), torch.zeros(4, 6)]), r"Got \[5, 6\]"),
        (lambda: weft.torch.buckets([]), "at least 1"),
        (lambda: weft.torch.buckets([8], axis=-1), "Got -1"),
    ]:
        with pytest.raises(weft.UsageError, match=message):
            bad()


def test_what_weft_lacks_runs_in_torch_and_is_counted():
    def f(x):
        values = torch.linalg.svdvals(x @ x.t())
        return values.sum() * x.exp()

    x = torch.randn(4, 4)
    torch.testing.assert_close(compiled(f)(x), f(x), rtol=1e-4, atol=1e-5)
    (fallback,) = [k for k in weft.torch.report().fallbacks]
    assert "svd" in fallback.operation and fallback.line.startswith("test_backend.py:")
    assert "svd" in str(weft.torch.report())


def test_graphs_are_named_in_the_report():
    x = torch.randn(8, 16)
    report = check_same(small(), x)  # no line of a program calls its layers
    assert [graph.name for graph in report.graphs] == ["Sequential"] * 2
    report = check_same(Attention(), torch.randint(0, 50, (3, 12)))
    assert all(graph.name.startswith("test_backend.py:") for graph in report.graphs)

    class Svd(nn.Module):
        def forward(self, x):
            return torch.linalg.svdvals(x)

    compiled(nn.Sequential(nn.Linear(16, 8), Svd()))(x)
    (fallback,) = weft.torch.report().fallbacks
    assert fallback.module == "1"


def test_fallbacks_can_be_errors():
    call = compiled(lambda x: torch.linalg.svdvals(x).sum(), fallback="error")
    with pytest.raises(Exception, match="svd.*no rule.*test_backend.py"):
        call(torch.randn(3, 3))


def test_graph_breaks_are_counted():
    def f(x):
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2

    assert torch.equal(compiled(f)(torch.ones(2)), torch.full((2,), 4.0))
    assert len(weft.torch.report().graphs) == 2
    assert weft.torch.report().graph_breaks


def test_complex_numbers_stay_with_torch():
    def f(x):
        return torch.fft.fft(x).abs().sum() + x.sum()

    x = torch.randn(8)
    torch.testing.assert_close(compiled(f)(x), f(x), rtol=1e-4, atol=1e-4)
    assert weft.torch.report().fallbacks


# ---- options, threads and lifetime


def test_options_that_do_not_exist():
    with pytest.raises(Exception, match="options are memory"):
        compiled(small(), memroy="1GiB")(torch.randn(2, 16))


def test_modules_of_equal_code_and_two_threads():
    models = [small().eval() for _ in range(2)]
    calls = [compiled(models[0]), torch.compile(models[1], backend=weft.torch.backend)]
    x = torch.randn(8, 16)
    with torch.no_grad():
        expected = [model(x) for model in models]
        for call in calls:
            call(x)
    wrong = []

    def work(i):
        with torch.no_grad():
            for _ in range(200):
                if not torch.allclose(calls[i](x), expected[i], rtol=1e-4, atol=1e-5):
                    wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_models_are_collected():
    model = small()
    call = compiled(model)
    call(torch.randn(2, 16)).sum().backward()
    dead = weakref.ref(model)
    del model, call
    torch._dynamo.reset()
    weft.torch.report().reset()
    gc.collect()
    assert dead() is None


def test_memory_budget():
    torch.manual_seed(0)
    model = nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(64, 64), nn.Tanh())])
    check_same(model, torch.randn(32, 64))
    with pytest.raises(Exception, match="takes at least"):
        compiled(model, memory=1000)(torch.randn(32, 64))


def test_the_backend_is_known_by_name_where_it_is_installed():
    from torch._dynamo.backends import registry

    registry.register_backend(weft.torch.backend, name="weft_of_the_tree")
    torch._dynamo.reset()
    with torch.no_grad():
        model = small().eval()
        x = torch.randn(2, 16)
        call = torch.compile(model, backend="weft_of_the_tree")
        torch.testing.assert_close(call(x), model(x), rtol=1e-5, atol=1e-6)
