"""What torch users try: each row of the table in docs/python.md has a test."""

import copy
import io
import pathlib
import pickle
import re

import pytest
import torch
from functions import Doubling
from torch import nn
from torch.nn import functional as F

import weft
import weft.torch

FOLDER = pathlib.Path(__file__).parent
PAGE = FOLDER.parents[2] / "docs" / "python.md"
# The first cell of a row to the tests that prove it: of this file, or "file::test".
ROWS = {
    "`fullgraph=True`, `dynamic=True` or `False`": [
        "test_fullgraph_dynamic_and_mode",
        "test_backend.py::test_new_sizes_are_planned_without_dynamo"],
    '`mode="reduce-overhead"` and others': ["test_fullgraph_dynamic_and_mode"],
    "a function, a part of a model, `module.compile()`": ["test_a_function_and_parts_of_a_model"],
    "`torch.no_grad()`, `inference_mode()`, `model.eval()`": [
        "test_backend.py::test_inference_without_gradients", "test_inference_mode"],
    "`torch.compiler.reset()`": ["test_reset_plans_anew"],
    "`torch.autocast`": ["test_autocast", "test_step.py::test_autocast"],
    "`GradScaler`": ["test_gradient_scaler"],
    "`channels_last`": [
        "test_channels_last", "test_backend.py::test_channels_last_results_keep_their_strides"],
    "`torch.set_default_dtype`": ["test_default_dtype"],
    "dropout, `torch.manual_seed`": [
        "test_backend.py::test_dropout_follows_torch_seed",
        "test_step.py::test_dropout_is_reproducible"],
    "`torch.use_deterministic_algorithms`": ["test_deterministic_algorithms"],
    "`DistributedDataParallel` around the model": [
        "test_distributed_around_a_model", "test_step.py::test_distributed_wrappers_are_refused"],
    "`DataParallel`, `AveragedModel`, parametrizations": ["test_wrappers_of_torch"],
    "`copy.deepcopy`, `state_dict`, `torch.save`, `pickle`": [
        "test_a_compiled_module_can_be_copied", "test_a_compiled_module_can_be_saved"],
    "`load_state_dict` after compile": [
        "test_a_state_that_is_loaded_later", "test_backend.py::test_weights_that_change_are_seen"],
    "copy or pickle of a step": ["test_a_step_is_not_copied"],
    "a model that is changed after compile": ["test_a_model_that_changes_after_compile"],
    "`torch.utils.checkpoint`, custom functions": [
        "test_activation_checkpointing", "test_custom_functions_and_detach"],
    "`torch.func`, `vmap`": ["test_function_transforms"],
    "derivatives of derivatives": ["test_higher_derivatives_are_refused_by_torch"],
    "hooks, another optimizer, an optimizer's closure": [
        "test_closures_of_optimizers", "test_step.py::test_refusals",
        "test_bad_input.py::test_hooks_of_modules",
        "test_step_changes.py::test_hooks_that_come_later_are_refused",
        "test_bad_input.py::test_hooks_of_parameters_are_called"],
    "`torch.profiler`, `detect_anomaly`": ["test_profiler_and_anomalies"],
    "a model that stores activations, a loss with weights": [
        "test_step.py::test_what_a_model_stores_is_stored_in_each_step",
        "test_step.py::test_a_loss_with_parameters_is_trained",
        "test_step_changes.py::test_what_a_model_stores_may_need_a_gradient"],
    "a forward pass that writes to weights or buffers: `p.data.clamp_()`, "
    "`nn.Embedding(max_norm=...)`, targets that follow": [
        "test_step_changes.py::test_weights_that_the_forward_pass_writes",
        "test_step_changes.py::test_a_buffer_is_not_written_a_value_that_needs_a_gradient"],
    "an input that needs a gradient, as of an encoder outside of the step; an input that is a "
    "weight": [
        "test_step_changes.py::test_gradients_that_would_be_cut_off_are_refused",
        "test_step_changes.py::test_the_first_batch_may_not_be_the_models_own"],
    "`clip_norm`, `accumulate`, model, loss and optimizer of a step": [
        "test_step_changes.py::test_what_a_step_was_made_of_is_fixed"],
    "weights, buffers, modules, groups or state of the optimizer that a program changes between "
    "steps; several steps of one model or optimizer": [
        f"test_step_changes.py::{test}" for test in (
            "test_weights_that_a_step_reads_alone_are_read_anew",
            "test_two_steps_train_a_generator_and_a_discriminator",
            "test_what_is_replaced_between_steps_is_read",
            "test_a_buffer_that_the_forward_pass_replaces", "test_two_steps_of_one_optimizer",
            "test_what_is_changed_in_an_optimizer_is_seen",
            "test_gradients_of_some_micro_steps", "test_sums_of_gradients_outlive_a_plan")],
    "a model that counts its calls in a Python number": [
        "test_step.py::test_a_model_that_counts_its_calls_is_named_with_its_line"],
    "ids and labels out of range": [
        "test_ids_and_labels_out_of_range", "test_computed_ids_out_of_range_read_zeros"],
    "complex numbers, nested tensors, sizes that depend on elements": [
        "test_backend.py::test_nested_tensors_run_in_torch",
        "test_backend.py::test_complex_numbers_stay_with_torch",
        "test_bad_input.py::test_sizes_that_depend_on_elements"],
    "a process forked after weft started": ["../test_lifetime.py::test_a_forked_child_is_told"],
}


def test_each_row_of_the_page_has_its_tests():
    table = PAGE.read_text().split("## What torch users try")[1]
    rows = re.findall(r"^\| ([^|]+?) \|", table, re.M)
    assert rows == list(ROWS)
    for tests in ROWS.values():
        for each in tests:
            file, _, name = each.rpartition("::")
            text = (FOLDER / (file or pathlib.Path(__file__).name)).read_text()
            assert f"\ndef {name}(" in text, each


def small():
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))


def compiled(model):
    torch._dynamo.reset()
    weft.torch.report().reset()
    return torch.compile(model, backend=weft.torch.backend)


def check_same(function, *inputs):
    torch.testing.assert_close(compiled(function)(*inputs), function(*inputs), rtol=1e-4, atol=1e-5)
    assert weft.torch.report().plans


# ---- options and modes of torch

def test_fullgraph_dynamic_and_mode():
    model = small().eval()
    x = torch.randn(4, 16)
    with torch.no_grad():
        for options in ({"fullgraph": True}, {"dynamic": True}, {"dynamic": False},
                        {"mode": "reduce-overhead"}):
            torch._dynamo.reset()
            call = torch.compile(model, backend=weft.torch.backend, **options)
            torch.testing.assert_close(call(x), model(x), rtol=1e-5, atol=1e-6)


def test_a_function_and_parts_of_a_model():
    x = torch.randn(4, 16)
    check_same(lambda x: (x * 2).softmax(-1), x)
    model = small()
    expected = model(x)
    model[0] = compiled(model[0])
    torch.testing.assert_close(model(x), expected)
    model(x).sum().backward()
    assert model[0].weight.grad is not None

    class Own(nn.Linear):  # of torch's own classes compile() leaves the call to torch
        def forward(self, x):
            return super().forward(x).relu()

    model = Own(16, 4)
    weft.torch.report().reset()
    model.compile(backend=weft.torch.backend)
    torch.testing.assert_close(model(x), model.forward(x))
    assert weft.torch.report().plans


def test_inference_mode():
    model, x = small(), torch.randn(4, 16)
    call = compiled(model)
    call(x)  # with gradients
    with torch.inference_mode():
        got = call(x)
    assert got.is_inference()
    torch.testing.assert_close(got, model(x).detach())


def test_reset_plans_anew():
    model = small().eval()
    call = compiled(model)
    x = torch.randn(4, 16)
    with torch.no_grad():
        call(x)
        torch.compiler.reset()
        torch.testing.assert_close(call(x), model(x), rtol=1e-5, atol=1e-6)
    assert len(weft.torch.report().graphs) == 2


def test_autocast():
    model = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 8))
    x = torch.randn(16, 64)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected = model(x)
        got = compiled(model)(x)
    assert got.dtype == torch.bfloat16
    torch.testing.assert_close(got, expected, rtol=3e-2, atol=3e-2)


def test_gradient_scaler():
    model = small()
    call = compiled(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    x = torch.randn(8, 16)
    before = model[0].weight.detach().clone()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = call(x).float().square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    assert not torch.equal(model[0].weight, before)
    assert torch.isfinite(model[0].weight).all()


def test_channels_last():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    model = model.to(memory_format=torch.channels_last)
    twin = copy.deepcopy(model)
    x = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
    got, expected = compiled(model)(x), twin(x)
    got.square().sum().backward()
    expected.square().sum().backward()
    assert got.stride() == expected.stride()
    assert model[0].weight.grad.stride() == twin[0].weight.grad.stride()
    torch.testing.assert_close(model[1].weight.grad, twin[1].weight.grad, rtol=1e-4, atol=1e-4)


def test_default_dtype():
    torch.set_default_dtype(torch.float64)
    try:
        model = nn.Linear(4, 2)
        check_same(lambda x: model(x) * torch.ones(2) + 1.5, torch.randn(3, 4))
    finally:
        torch.set_default_dtype(torch.float32)


def test_deterministic_algorithms():
    torch.use_deterministic_algorithms(True)
    try:
        index = torch.randint(0, 5, (64,))
        check_same(lambda x: torch.zeros(5).index_add(0, index, x), torch.randn(64))
    finally:
        torch.use_deterministic_algorithms(False)


# ---- wrappers, copies and files


def test_wrappers_of_torch():
    model, x = small(), torch.randn(4, 16)
    torch.testing.assert_close(nn.DataParallel(compiled(model))(x), model(x))
    check_same(nn.DataParallel(model), x)
    check_same(torch.optim.swa_utils.AveragedModel(model), x)
    check_same(nn.utils.parametrizations.weight_norm(nn.Linear(16, 4)), x)


def test_distributed_around_a_model():
    import torch.distributed as dist

    store = dist.HashStore()
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        torch.manual_seed(0)
        model, twin = small(), small()
        twin.load_state_dict(model.state_dict())
        parallel = compiled(nn.parallel.DistributedDataParallel(model))
        x = torch.randn(8, 16)
        parallel(x).square().mean().backward()
        twin(x).square().mean().backward()
        for p, q in zip(model.parameters(), twin.parameters()):
            torch.testing.assert_close(p.grad, q.grad, rtol=1e-4, atol=1e-6)
    finally:
        dist.destroy_process_group()


def test_a_compiled_module_can_be_copied():
    model = small().eval()
    twin = copy.deepcopy(compiled(model))
    x = torch.randn(2, 16)
    with torch.no_grad():
        torch.testing.assert_close(twin(x), model(x), rtol=1e-5, atol=1e-6)


def test_a_compiled_module_can_be_saved():
    model, x = small().eval(), torch.randn(2, 16)
    call = compiled(model)
    with torch.no_grad():
        expected = call(x)
        twin = compiled(small().eval())
        twin.load_state_dict(call.state_dict())
        torch.testing.assert_close(twin(x), expected)
        file = io.BytesIO()
        torch.save(call, file)
        file.seek(0)
        torch.testing.assert_close(torch.load(file, weights_only=False)(x), expected)
        torch.testing.assert_close(pickle.loads(pickle.dumps(call))(x), expected)


def test_a_state_that_is_loaded_later():
    model, other, x = small(), small(), torch.randn(2, 16)
    call = compiled(model)
    call(x)
    call.load_state_dict({f"_orig_mod.{name}": t for name, t in other.state_dict().items()})
    torch.testing.assert_close(call(x), other(x))
    model.load_state_dict(small().state_dict())
    torch.testing.assert_close(call(x), model(x))


def test_a_step_is_not_copied():
    model = small()
    step = weft.torch.step(
        model, lambda o: o.square().mean(), torch.optim.SGD(model.parameters(), lr=0.1))
    for copied in (copy.deepcopy, copy.copy, pickle.dumps):
        with pytest.raises(TypeError, match=r"make it anew with weft.torch.step\(\)"):
            copied(step)


def test_a_model_that_changes_after_compile():
    model = nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.5), nn.Linear(16, 4))
    call = compiled(model)
    x = torch.randn(4, 16)
    assert not torch.equal(call(x), call(x))
    model.eval()
    torch.testing.assert_close(call(x), model(x), rtol=1e-5, atol=1e-6)
    model[2] = nn.Linear(16, 3)
    torch.testing.assert_close(call(x), model(x), rtol=1e-5, atol=1e-6)


# ---- derivatives


def test_function_transforms():
    def f(x):
        return (x.sin() * x).sum()

    x = torch.randn(3, 4)
    check_same(lambda x: torch.func.grad(f)(x), x)
    check_same(lambda x: torch.vmap(lambda row: row * row.sum())(x), x)
    check_same(lambda x: torch.func.jvp(f, (x,), (x,))[1], x)
    check_same(lambda x: torch.func.hessian(f)(x), x[0])
    call = compiled(f)  # inside a transform torch runs the function itself
    torch.testing.assert_close(torch.func.grad(call)(x), torch.func.grad(f)(x))
    torch.testing.assert_close(torch.vmap(call)(x), torch.vmap(f)(x))


def test_closures_of_optimizers():
    torch.manual_seed(0)
    model, x = nn.Linear(4, 1), torch.randn(8, 4)
    twin = copy.deepcopy(model)
    for net, forward in ((model, compiled(model)), (twin, twin)):
        optimizer = torch.optim.LBFGS(net.parameters(), max_iter=3)

        def closure():
            optimizer.zero_grad()
            loss = (forward(x) - 1).square().mean()
            loss.backward()
            return loss

        optimizer.step(closure)
    torch.testing.assert_close(model.weight, twin.weight, rtol=1e-3, atol=1e-4)
    with pytest.raises(weft.UsageError, match="LBFGS.*Hint: torch.compile"):
        weft.torch.step(model, F.mse_loss, torch.optim.LBFGS(model.parameters()))


def test_profiler_and_anomalies():
    model, x = small(), torch.randn(4, 16)
    call = compiled(model)
    call(x).sum().backward()
    with torch.profiler.profile() as profile, torch.profiler.record_function("forward"):
        call(x)
    assert any(event.key == "forward" for event in profile.key_averages())
    with pytest.warns(UserWarning, match="Anomaly"), torch.autograd.detect_anomaly():
        call(x).sum().backward()


def test_activation_checkpointing():
    from torch.utils.checkpoint import checkpoint

    model = small()

    def f(x):
        return checkpoint(model, x, use_reentrant=False).square().mean()

    x = torch.randn(8, 16)
    f(x).backward()
    expected = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    compiled(f)(x).backward()
    for p, g in zip(model.parameters(), expected):
        torch.testing.assert_close(p.grad, g, rtol=1e-4, atol=1e-6)


def test_custom_functions_and_detach():
    def f(x):
        return (Doubling.apply(x) * x.detach()).sum()

    x = torch.randn(6, requires_grad=True)
    compiled(f)(x).backward()
    torch.testing.assert_close(x.grad, 2 * x.detach())


def test_higher_derivatives_are_refused_by_torch():
    x = torch.randn(4, requires_grad=True)
    (g,) = torch.autograd.grad(compiled(lambda x: x.pow(3).sum())(x), x, create_graph=True)
    with pytest.raises(RuntimeError, match="double backward"):
        g.sum().backward()


class Words(nn.Module):
    """Learns the next word of each, so that the last is read as a label alone."""

    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(10, 4), nn.Linear(4, 5)

    def forward(self, ids):
        return self.head(self.table(ids[:, :-1])).flatten(0, 1)


def test_ids_and_labels_out_of_range():
    model = Words()
    ids, labels = torch.randint(0, 10, (3, 6)), torch.randint(0, 5, (15,))
    ids[1, 5], labels[0] = 99, -100  # which nothing reads
    wrong_ids, wrong_labels = ids.clone(), labels.clone()
    wrong_ids[1, 3], wrong_labels[4] = 10, 5
    before = copy.deepcopy(model.state_dict())
    step = weft.torch.step(model, F.cross_entropy, torch.optim.SGD(model.parameters(), lr=0.1))
    call = compiled(model)
    for _ in range(2):  # planned, and known
        with pytest.raises(IndexError, match=r"embedding.* \(test_habits.py:\d+\): 10 is outside"):
            step(wrong_ids, labels)
        with pytest.raises(IndexError, match=r"nll_loss.* 5 is outside of \[0, 5\)"):
            step(ids, wrong_labels)
        with pytest.raises(IndexError, match=r"embedding.* \(test_habits.py:\d+\): 10 is outside"):
            call(wrong_ids)
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(tensor, before[name], rtol=0, atol=0)
    assert step(ids, labels).isfinite() and call(ids.int()).isfinite().all()


def test_computed_ids_out_of_range_read_zeros():
    table = nn.Embedding(10, 4)
    rows = compiled(lambda ids: table(ids * 2))(torch.tensor([3, 5, -1]))
    assert torch.equal(rows[0], table.weight[6]) and not rows[1:].any()
    rows.sum().backward()
    assert table.weight.grad.sum() == 4 and torch.equal(table.weight.grad[6], torch.ones(4))
