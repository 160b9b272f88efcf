"""Modules: names and initial values are those of C++, results those of PyTorch."""

import concurrent.futures
import gc
import inspect
import subprocess
import sys
import weakref

import brought
import numpy as np
import pytest

import weft
from weft import nn, optim

torch = brought.imported("torch")
RNG = np.random.default_rng(0)


def floats(*shape):
    return RNG.standard_normal(shape).astype("f4")


class Mlp(nn.Module):
    def __init__(self, *sizes):
        super().__init__()
        self.hidden = nn.Linear(sizes[0], sizes[1])
        self.dropout = nn.Dropout(0.1)
        self.head = nn.Linear(sizes[1], sizes[2])

    def forward(self, x):
        return self.head(self.dropout(weft.tanh(self.hidden(x))))


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter((4,), nn.Init.constant(2))
        self.seen = nn.Buffer((), 0)

    def forward(self, x):
        return x * self.scale


# ---- the tree


def test_members_register_by_name():
    net = Mlp(3, 5, 2)
    names = ["hidden.weight", "hidden.bias", "head.weight", "head.bias"]
    assert [name for name, _ in net.named_parameters()] == names
    assert [variable.name for variable in net.parameters()] == names
    assert net.head.path == "head" and net.parameter_count() == 3 * 5 + 5 + 5 * 2 + 2
    assert [name for name, _ in net.named_modules()] == ["", "hidden", "dropout", "head"]


def test_nested_modules_have_their_full_paths():
    net = nn.Module()
    net.blocks = nn.ModuleList([Mlp(3, 5, 2), Mlp(3, 5, 2)])
    net.heads = nn.ModuleDict({"a": nn.Linear(2, 2, bias=False)})
    assert net.blocks[1].hidden.weight.name == "blocks.1.hidden.weight"
    assert [name for name, _ in net.named_parameters()][-1] == "heads.a.weight"
    assert "a" in net.heads and len(net.blocks) == 2


def test_initial_values_follow_the_seed_and_the_path():
    weft.manual_seed(3)
    first, same = Mlp(3, 5, 2), Mlp(3, 5, 2)
    weft.manual_seed(0)
    other = Mlp(3, 5, 2)
    values = [np.array(net.head.weight.numpy()) for net in (first, same, other)]
    assert (values[0] == values[1]).all() and (values[0] != values[2]).all()


def test_parameters_and_buffers_of_a_program_s_own_module():
    net = Scaled()
    assert (np.asarray(net(floats(2, 4) * 0 + 1)) == 2).all()
    assert [name for name, _ in net.state()] == ["scale", "seen"]
    assert [name for name, _ in net.named_buffers()] == ["seen"]


def test_variables_are_shared_by_assignment():
    net = nn.Module()
    net.embed = nn.Embedding(10, 4)
    net.head_weight = net.embed.weight
    assert [name for name, _ in net.state()] == ["head_weight"]
    assert net.head_weight.name == "embed.weight"


def test_members_added_or_replaced_after_the_first_use():
    net = Mlp(3, 5, 2)
    net.parameters()
    net.extra = nn.Linear(2, 2)
    net.head = nn.Linear(5, 7)
    assert net.head.weight.shape == (7, 5) and net.extra.weight.name == "extra.weight"
    assert net(floats(1, 3)).shape == (1, 7)


def test_frozen_parameters_get_no_gradient():
    net = Mlp(3, 5, 2)
    net.freeze("hidden.*")
    assert [variable.name for variable in net.parameters()] == ["head.weight", "head.bias"]
    net.unfreeze()
    assert len(net.parameters()) == 4
    with pytest.raises(weft.UsageError, match=r'no parameter .* "tail\.\*".*test_nn\.py'):
        net.freeze("tail.*")


def test_repr_is_the_tree():
    assert repr(nn.Sequential(Mlp(3, 5, 2), nn.ReLU())) == (
        "Sequential(\n"
        "  (0): Mlp(\n"
        "    (hidden): Linear(in_features=3, out_features=5)\n"
        "    (dropout): Dropout(p=0.1)\n"
        "    (head): Linear(in_features=5, out_features=2)\n"
        "  )\n"
        "  (1): ReLU()\n"
        ")")


def test_signatures_are_those_of_cpp():
    assert str(inspect.signature(nn.Linear)) == (
        "(in_features, out_features, bias=True, init=None, transposed=False)")
    assert str(inspect.signature(nn.ReLU)) == "()"


def test_arguments_are_refused_on_the_line_that_gives_them():
    with pytest.raises(weft.UsageError, match=r"positive extents.*test_nn\.py"):
        nn.Linear(0, 3)
    with pytest.raises(TypeError, match="out_features"):
        nn.Linear(3)
    with pytest.raises(weft.UsageError, match=r'"hidden" takes 3 features.*test_nn\.py'):
        Mlp(3, 5, 2)(floats(2, 4))


def test_misuse_of_the_tree_is_refused():
    shared = nn.Linear(2, 2)
    net = nn.Sequential(shared)
    with pytest.raises(weft.UsageError, match="one place"):
        net.append(shared)
    used = nn.Linear(2, 2)
    used.parameters()
    with pytest.raises(weft.UsageError, match="used before"):
        net.append(used)
    with pytest.raises(weft.UsageError, match="member"):
        Mlp(3, 5, 2).head = 3

    with pytest.raises(TypeError, match="has modules"):
        nn.Sequential([nn.Linear(2, 2)])
    with pytest.raises(AttributeError, match="ModeScope"):
        net.eval()
    with pytest.raises(weft.UsageError, match=r'"scale" needs positive.*test_nn\.py'):
        wrong = nn.Module()
        wrong.scale = nn.Parameter((0,))
        wrong.parameters()

    class Forgetful(nn.Module):
        def __init__(self):
            self.head = nn.Linear(2, 2)

    with pytest.raises(AttributeError, match="super"):
        Forgetful()


def test_threads_that_use_a_net_first_see_all_of_it():
    for _ in range(5):
        net = nn.Sequential(*[nn.Linear(64, 64) for _ in range(16)])
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            counts = list(pool.map(lambda _: len(net.parameters()), range(8)))
        assert counts == [32] * 8


def test_nets_are_collected():
    net = Mlp(3, 5, 2)
    weight, alive = net.head.weight, weakref.ref(net)
    del net
    gc.collect()
    assert alive() is None and weight.shape == (2, 5)


# ---- results, beside PyTorch


def like_torch(ours, theirs, *inputs, tolerance=2e-5):
    """Checks a layer with PyTorch's weights, which load by name, in evaluation."""
    theirs = theirs.eval()
    ours.load_state_dict({name: value for name, value in theirs.state_dict().items()
                          if not name.endswith("num_batches_tracked")})
    with torch.no_grad():
        expected = theirs(*[torch.from_numpy(each) for each in inputs])
    with weft.ModeScope("eval"):
        got = np.asarray(ours(*inputs))
    expected = expected[0] if isinstance(expected, tuple) else expected
    np.testing.assert_allclose(got, expected.numpy(), atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("ours, theirs, shape", [
    (nn.Linear(5, 7), torch.nn.Linear(5, 7), (2, 3, 5)),
    (nn.Linear(5, 7, bias=False), torch.nn.Linear(5, 7, bias=False), (2, 5)),
    (nn.Conv1d(4, 6, 3, padding=1), torch.nn.Conv1d(4, 6, 3, padding=1), (2, 4, 9)),
    (nn.Conv2d(4, 6, (3, 1), stride=(2, 1), groups=2),
     torch.nn.Conv2d(4, 6, (3, 1), stride=(2, 1), groups=2), (2, 4, 9, 5)),
    (nn.Conv3d(2, 3, 2), torch.nn.Conv3d(2, 3, 2), (1, 2, 4, 4, 4)),
    (nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1),
     torch.nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1), (2, 4, 5, 5)),
    (nn.MaxPool2d(2), torch.nn.MaxPool2d(2), (2, 3, 6, 6)),
    (nn.AvgPool2d(3, stride=1, padding=1, count_include_pad=False),
     torch.nn.AvgPool2d(3, stride=1, padding=1, count_include_pad=False), (2, 3, 6, 6)),
    (nn.Flatten(), torch.nn.Flatten(), (2, 3, 4)),
    (nn.LayerNorm(6), torch.nn.LayerNorm(6), (2, 6)),
    (nn.RMSNorm(6, eps=1e-5), torch.nn.RMSNorm(6, eps=1e-5), (2, 6)),
    (nn.GroupNorm(2, 6), torch.nn.GroupNorm(2, 6), (2, 6, 4)),
    (nn.BatchNorm(6), torch.nn.BatchNorm2d(6), (2, 6, 4, 4)),
    (nn.Dropout(0.5), torch.nn.Dropout(0.5), (2, 6)),
    (nn.GELU(), torch.nn.GELU(), (2, 6)),
    (nn.LSTM(4, 6, num_layers=2, bidirectional=True),
     torch.nn.LSTM(4, 6, num_layers=2, bidirectional=True, batch_first=True), (2, 5, 4)),
    (nn.GRU(4, 6), torch.nn.GRU(4, 6, batch_first=True), (2, 5, 4)),
    (nn.TransformerEncoderLayer(8, 2, 16),
     torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (2, 5, 8)),
], ids=lambda each: type(each).__name__ if isinstance(each, nn.Module) else "")
def test_a_layer_computes_what_pytorch_s_does(ours, theirs, shape):
    like_torch(ours, theirs, floats(*shape))


def test_embeddings_and_attention_compute_what_pytorch_s_do():
    like_torch(nn.Embedding(10, 4), torch.nn.Embedding(10, 4), RNG.integers(0, 10, (2, 3)))
    query, key = floats(2, 5, 8), floats(2, 7, 8)
    like_torch(nn.MultiheadAttention(8, 2), torch.nn.MultiheadAttention(8, 2, batch_first=True),
               query, key, key)
    ours = nn.Transformer(8, 2, 1, 1, dim_feedforward=16)
    like_torch(ours, torch.nn.Transformer(8, 2, 1, 1, 16, batch_first=True), key, query)
    assert ours.encoder.layers[0].self_attn.out_proj.weight.shape == (8, 8)


def test_masks_of_attention():
    theirs = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    ours = nn.MultiheadAttention(8, 2)
    ours.load_state_dict(theirs.state_dict())
    x, padding = floats(2, 5, 8), np.arange(5) >= np.array([[5], [3]])
    expected, _ = theirs(*[torch.from_numpy(x)] * 3, key_padding_mask=torch.from_numpy(padding))
    got = ours(x, x, x, nn.AttentionMasks(key_padding_mask=padding))
    np.testing.assert_allclose(got.numpy(), expected.detach().numpy(), atol=2e-6)


def test_recurrent_layers_return_their_states():
    theirs, ours = torch.nn.LSTM(4, 6, batch_first=True), nn.LSTM(4, 6)
    ours.load_state_dict(theirs.state_dict())
    x, h, c = floats(2, 5, 4), floats(1, 2, 6), floats(1, 2, 6)
    y, states = theirs(torch.from_numpy(x), (torch.from_numpy(h), torch.from_numpy(c)))
    for got, expected in zip(ours.run(x, h, c), (y, *states)):
        np.testing.assert_allclose(got.numpy(), expected.detach().numpy(), atol=2e-6)


# ---- training


def test_a_net_trains_as_in_pytorch():
    torch.manual_seed(0)
    theirs = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))
    ours = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
    ours.load_state_dict(theirs.state_dict())
    optimizer = optim.AdamW(ours.parameters(), lr=1e-2, weight_decay=0.1)

    @weft.compile
    def step(x, y):
        loss = weft.cross_entropy(ours(x), y)
        optimizer.step(weft.grad(loss, ours.parameters()))
        return loss

    reference = torch.optim.AdamW(theirs.parameters(), lr=1e-2, weight_decay=0.1)
    x, y = floats(32, 6), RNG.integers(0, 3, 32)
    for _ in range(20):
        loss = step(x, y)
        expected = torch.nn.functional.cross_entropy(theirs(torch.from_numpy(x)),
                                                     torch.from_numpy(y))
        reference.zero_grad()
        expected.backward()
        reference.step()
    assert abs(loss.item() - expected.item()) < 1e-5
    for name, value in theirs.state_dict().items():
        np.testing.assert_allclose(np.asarray(ours.state_dict()[name]), value, atol=2e-5)


def test_state_dict_keeps_its_values_while_the_net_trains():
    net = nn.Linear(3, 3)
    before = net.state_dict()
    copy = np.array(before["weight"])
    optimizer = optim.SGD(net.parameters(), lr=1.0)
    weft.compile(lambda x: optimizer.step(weft.grad(weft.sum(net(x)), net.parameters())) or x)(
        floats(2, 3))
    assert (np.asarray(before["weight"]) == copy).all()
    assert (net.weight.numpy() != copy).any()
    net.load_state_dict(before)
    assert (net.weight.numpy() == copy).all()


def test_groups_and_accumulated_gradients():
    net = nn.Linear(3, 3, init=nn.Init.constant(1))
    net.bias.assign(np.ones(3, "f4"))
    groups = [optim.Group(lambda v: v.name == "bias", weight_decay=0.0, lr_scale=0.5)]
    optimizer = optim.SGD(net.parameters(), lr=0.5, weight_decay=1.0, groups=groups)
    sums = optim.Accumulator(net.parameters())
    x = floats(4, 3)

    def gradients(part):
        return weft.grad(weft.mean(net(part)), net.parameters())

    whole = [np.asarray(each) for each in gradients(x)]
    sums.add(gradients(x[:3]), 3)
    sums.add(gradients(x[3:]), 1)
    for got, expected in zip(sums.mean(), whole):
        np.testing.assert_allclose(np.asarray(got), expected, atol=1e-6)
    optimizer.step(whole)
    np.testing.assert_allclose(net.weight.numpy(), 0.5 - 0.5 * whole[0], atol=1e-6)
    np.testing.assert_allclose(net.bias.numpy(), 1 - 0.25 * whole[1], atol=1e-6)


def test_schedules_are_those_of_cpp():
    assert optim.cosine(1.0, total=100, warmup=10).at(0) == pytest.approx(1 / 11)
    assert optim.linear(1.0, total=100).at(100) == 0
    assert optim.step_decay(1.0, every=10).at(10) == pytest.approx(0.1)
    assert optim.wsd(1.0, total=100, decay=20).at(50) == 1
    assert optim.constant(0.5).at(7) == 0.5


def test_lora_trains_the_adapters_alone():
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    x = floats(3, 4)
    before = np.array(net(x))
    assert nn.add_lora(net, "0", r=2) == ["0"]
    assert [v.name for v in net.parameters()] == ["0.lora_A.weight", "0.lora_B.weight"]
    np.testing.assert_array_equal(np.asarray(net(x)), before)
    nn.merge_lora(net)
    assert len(net.named_parameters()) == 4


def test_build_scope_sets_type_and_initial_values():
    with nn.BuildScope(dtype="bf16", initialize=False):
        net = nn.Linear(3, 2)
    assert net.weight.dtype == "bf16" and (np.asarray(net.weight, "f4") == 0).all()


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, x):
        return self.down(weft.tanh(self.up(x)))


class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(4))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def test_modules_that_are_rematerialized():
    net, x = Deep(), floats(64, 32)

    def loss_and_gradients(x):
        loss = weft.sum(net(x))
        return [loss, *weft.grad(loss, net.parameters())]

    plain = weft.compile(loss_and_gradients)
    less = weft.compile(loss_and_gradients, rematerialize=["blocks.*"])
    for a, b in zip(plain(x), less(x)):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
    assert less.plan(x).rematerialized > plain.plan(x).rematerialized == 0
    with pytest.raises(weft.UsageError, match="layers"):
        weft.compile(loss_and_gradients, rematerialize=["layers.*"])(x)


# ---- files


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 3)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x, shift=None):
        y = self.dropout(self.head(x))
        return {"y": y, "total": weft.sum(y if shift is None else y + shift)}


@pytest.mark.parametrize("name", ["net.onnx", "net.weft"])
@pytest.mark.parametrize("keys", [None, ["x", "shift"]])
def test_exported_nets_compute_what_the_net_computes(tmp_path, name, keys):
    net, arrays = Pair(), [floats(2, 4), floats(2, 3)][: len(keys or "x")]
    weft.export(net, dict(zip(keys, arrays)) if keys else arrays[0], tmp_path / name)
    given = []
    for key, array in zip(keys or ["input_0"], arrays):
        np.save(tmp_path / f"{key}.npy", array)
        given += ["--input", f"{key}={tmp_path / key}.npy"]
    done = subprocess.run(
        [sys.executable, "-m", "weft", "run", str(tmp_path / name), *given,
         "--output", str(tmp_path / "out.npz")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with weft.ModeScope("eval"):
        expected = net(*arrays)
    found = np.load(tmp_path / "out.npz")
    for result, key in zip(expected.values(), ("output_0", "output_1")):
        np.testing.assert_allclose(found[key], result.numpy(), rtol=1e-5, atol=1e-6)


def test_nets_that_are_not_exported():
    with pytest.raises(weft.UsageError, match="ends in .onnx or .weft"):
        weft.export(Pair(), floats(2, 4), "net.pb")
    with pytest.raises(weft.UsageError, match="weft.compile.*plan"):
        weft.plan(Pair(), floats(2, 4))
