"""Files, beside the safetensors library, NumPy and Python's csv."""

import csv
import gzip
import struct

import brought
import numpy as np
import pytest

import weft
from weft import io, nn

RNG = np.random.default_rng(0)


def floats(*shape):
    return RNG.standard_normal(shape).astype("f4")


def net():
    made = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    for variable in made.parameters():
        variable.assign(floats(*variable.shape))
    return made


def test_a_net_goes_to_a_file_and_back(tmp_path):
    numpy_files = brought.imported("safetensors.numpy")
    first, second, file = net(), net(), tmp_path / "net.safetensors"
    io.save(first, file)
    for name, array in numpy_files.load_file(file).items():
        assert (array == np.asarray(first.state_dict()[name])).all()
    loaded = io.load(second, file)
    assert loaded.loaded == [name for name, _ in second.state()] and not loaded.missing
    assert (second[0].weight.numpy() == first[0].weight.numpy()).all()


def test_arrays_by_name(tmp_path):
    numpy_files = brought.imported("safetensors.numpy")
    file = tmp_path / "some.safetensors"
    arrays = {"a": floats(2, 3), "b": np.arange(5), "c": weft.tensor([1.0, 2.0])}
    io.save(arrays, file, metadata={"by": "weft"})
    read = io.Safetensors(file)
    assert sorted(read) == ["a", "b", "c"] and len(read) == 3 and "d" not in read
    assert read.metadata == {"by": "weft"}
    for name, expected in numpy_files.load_file(file).items():
        np.testing.assert_array_equal(np.asarray(read[name]), expected)
        np.testing.assert_array_equal(np.asarray(arrays[name]), expected)
    with pytest.raises(KeyError):
        read["d"]


def test_a_folder_is_what_transformers_reads(tmp_path):
    files = brought.imported("safetensors.numpy")
    made = net()
    io.save_folder(made, tmp_path / "out", {"config.json": '{"model_type": "own"}'})
    written = files.load_file(tmp_path / "out" / "model.safetensors")
    for name, value in made.state_dict().items():
        np.testing.assert_array_equal(written[name], np.asarray(value))
    assert (tmp_path / "out" / "config.json").read_text() == '{"model_type": "own"}'
    with pytest.raises(weft.UsageError, match="out"):  # it exists, and stays as it is
        io.save_folder(made, tmp_path / "out")


def test_what_does_not_fit_changes_nothing(tmp_path):
    target, file = net(), tmp_path / "x.safetensors"
    before = target.state_dict()
    io.save({"0.weight": floats(4, 3), "extra": floats(1)}, file)
    with pytest.raises(weft.DataError, match="3 missing.*1 unexpected"):
        io.load(target, file)
    assert (target[0].weight.numpy() == np.asarray(before["0.weight"])).all()
    found = io.load(target, file, strict=False)
    assert found.loaded == ["0.weight"] and found.unexpected == ["extra"]
    assert (target[0].weight.numpy() != np.asarray(before["0.weight"])).all()
    io.load(target, file, ignore=["extra", "*.bias", "1.*"])
    with pytest.raises(weft.DataError, match="extra"):
        io.load(target, file, ignore=["*.bias", "1.*"])


def test_names_are_mapped_and_types_cast():
    target = nn.Linear(3, 4)
    state = {"model.w.weight": floats(4, 3).astype("f2"), "model.w.bias": floats(4).astype("f2")}
    with pytest.raises(weft.DataError):
        io.load(target, state, prefix="model.w.")
    io.load(target, state, prefix="model.w.", cast=True)
    assert (target.weight.numpy() == state["model.w.weight"]).all()
    io.load(target, state, rename=[("model.w.*", "*")], cast=True)


def test_variables_of_an_optimizer(tmp_path):
    target = nn.Linear(3, 4)
    optimizer = weft.optim.AdamW(target.parameters())
    optimizer.step([floats(4, 3), floats(4)])
    io.save(optimizer.state, tmp_path / "o.safetensors")
    other = weft.optim.AdamW(target.parameters())
    io.load(other.state, tmp_path / "o.safetensors")
    for a, b in zip(optimizer.state, other.state):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_files_of_numpy(tmp_path):
    arrays = {"a": floats(3, 4), "b": np.arange(6)}
    np.save(tmp_path / "a.npy", arrays["a"])
    np.savez(tmp_path / "all.npz", **arrays)
    np.testing.assert_array_equal(np.asarray(io.read_npy(tmp_path / "a.npy")), arrays["a"])
    for name, tensor in io.read_npz(tmp_path / "all.npz").items():
        np.testing.assert_array_equal(np.asarray(tensor), arrays[name])
    io.write_npy(tmp_path / "b.npy", arrays["b"])
    io.write_npz(tmp_path / "ours.npz", arrays)
    np.testing.assert_array_equal(np.load(tmp_path / "b.npy"), arrays["b"])
    with np.load(tmp_path / "ours.npz") as read:
        np.testing.assert_array_equal(read["a"], arrays["a"])


def test_idx_and_csv(tmp_path):
    pixels = RNG.integers(0, 256, (2, 3, 3), dtype="u1")
    with gzip.open(tmp_path / "x.gz", "wb") as file:
        file.write(struct.pack(">HBBIII", 0, 8, 3, *pixels.shape) + pixels.tobytes())
    np.testing.assert_array_equal(np.asarray(io.read_idx(tmp_path / "x.gz")), pixels)
    rows = [["name", "text"], ["a", 'with "quotes", and\na line'], ["b", ""]]
    with open(tmp_path / "x.csv", "w", newline="") as file:
        csv.writer(file).writerows(rows)
    assert io.read_csv(tmp_path / "x.csv") == rows


def test_errors_name_the_file(tmp_path):
    (tmp_path / "bad.safetensors").write_bytes(b"no")
    with pytest.raises(weft.DataError, match="bad.safetensors"):
        io.Safetensors(tmp_path / "bad.safetensors")
    with pytest.raises(weft.Error, match="absent.npy"):
        io.read_npy(tmp_path / "absent.npy")
