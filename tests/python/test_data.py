"""Data sets, loaders and tokenizers, beside NumPy and the tokenizers library."""

import json
import os

import brought
import numpy as np
import pytest

import weft
from weft import data

RNG = np.random.default_rng(0)
ROOT = os.environ.get("WEFT_DATA_DIR", "")


def rows(loader):
    """Returns inputs and labels of an epoch, as arrays."""
    batches = [(np.array(x), np.array(y)) for x, y in loader]
    return [np.concatenate(each) for each in zip(*batches)]


def test_a_loader_gives_each_row_of_arrays_once_an_epoch():
    x, y = RNG.standard_normal((10, 3)).astype("f4"), np.arange(10)
    loader = data.Loader((x, y), batch_size=4, shuffle=True, seed=1)
    epochs = [rows(loader) for _ in range(2)]
    for inputs, labels in epochs:
        assert sorted(labels) == list(range(10)) and labels.dtype == np.int64
        assert (inputs == x[labels]).all()
    assert (epochs[0][1] != epochs[1][1]).any() and len(loader) == 3
    again = data.Loader((x, y), batch_size=4, shuffle=True, seed=1)
    assert (rows(again)[1] == epochs[0][1]).all()
    assert len(data.Loader((x, y), batch_size=4, drop_last=True)) == 2
    assert [len(batch[0]) for batch in data.Loader((x, y), batch_size=4)] == [4, 4, 2]


def test_targets_are_numbers_and_tokens_are_integers():
    x, y = RNG.integers(0, 9, (6, 5)), RNG.standard_normal((6, 2))
    inputs, targets = rows(data.Loader((x, y), batch_size=6))
    assert (inputs == x).all() and targets.dtype == np.float32
    np.testing.assert_allclose(targets, y, rtol=1e-6)
    with pytest.raises(weft.UsageError, match=r"one row for each sample.*test_data\.py"):
        data.Loader((x, y[:3]))


def test_batches_that_are_kept_stay_valid():
    x, y = np.arange(64, dtype="f4")[:, None], np.arange(64)
    kept = list(data.Loader((x, y), batch_size=4))
    assert (np.concatenate([inputs.numpy() for inputs, _ in kept]) == x).all()


def test_a_net_learns_from_a_loader():
    x = RNG.standard_normal((256, 2)).astype("f4")
    y = (x[:, 0] > x[:, 1]).astype("i8")
    net = weft.nn.Linear(2, 2)
    optimizer = weft.optim.SGD(net.parameters(), lr=1.0)

    @weft.compile
    def step(inputs, labels):
        loss = weft.cross_entropy(net(inputs), labels)
        optimizer.step(weft.grad(loss, net.parameters()))
        return loss

    for inputs, labels in data.Loader((x, y), batch_size=32, shuffle=True):
        step(inputs, labels)
    assert (np.argmax(np.asarray(net(x)), -1) == y).mean() > 0.95


@pytest.mark.skipif(not os.path.isdir(os.path.join(ROOT, "mnist")), reason="no MNIST")
def test_mnist():
    test = data.mnist("test")
    assert len(test) == 10000 and test.image_shape == (1, 28, 28) and test.classes == 10
    pixels = np.asarray(weft.io.read_idx(os.path.join(ROOT, "mnist", "t10k-images-idx3-ubyte.gz")))
    assert (np.asarray(test.pixels(7)) == pixels[7]).all()
    images, labels = next(iter(test.normalize().batches(16)))
    np.testing.assert_allclose(images.numpy()[:, 0], pixels[:16] / 255, atol=1e-6)
    assert labels.tolist() == [test.label(i) for i in range(16)]
    part = test.slice(0, 100).transform(random_horizontal_flip=1.0).normalize()
    images, _ = next(iter(part.batches(16)))
    np.testing.assert_allclose(images.numpy()[:, 0], pixels[:16, :, ::-1] / 255, atol=1e-6)


def test_absent_data_sets_are_refused_with_their_place(tmp_path):
    with pytest.raises(weft.DataError, match="mnist"):
        data.mnist("train", root=tmp_path)


def test_text_as_windows_of_tokens(tmp_path):
    text = "the quick brown fox jumps over the lazy dog. " * 20
    (tmp_path / "a.txt").write_text(text)
    made = data.text(tmp_path / "a.txt", val_split=0.25)
    assert made.vocabulary.decode(made.train.tokens) == text[: len(text) * 3 // 4]
    assert made.train.vocabulary_size == len(set(text)) == len(made.vocabulary)
    x, y = rows(data.Loader(made.train.windows(16), batch_size=8))
    assert (x[:, 1:] == y[:, :-1])[:-1].all()
    masked = data.masked(made.train.windows(16), vocabulary=28, mask=27)
    inputs, labels = rows(data.Loader(masked, batch_size=4))
    assert ((labels == -100) | (labels == x)).all() and (inputs == 27).any()


def test_tables(tmp_path):
    numbers = RNG.standard_normal((20, 2))
    lines = ["a,b,kind"] + [f"{a},{b},{'xy'[i % 2]}" for i, (a, b) in enumerate(numbers)]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    table = data.read_table(tmp_path / "t.csv", "kind", classes=True)
    assert len(table) == 20 and table.features == ["a", "b"]
    columns = table.columns()
    assert columns.classes == ["x", "y"]
    x, y = rows(data.Loader(table.source(columns=columns), batch_size=20))
    np.testing.assert_allclose(x, (numbers - numbers.mean(0)) / numbers.std(0), atol=1e-5)
    assert (y == np.arange(20) % 2).all()


def test_a_tokenizer_gives_the_ids_of_the_tokenizers_library(tmp_path):
    tokenizers = brought.imported("tokenizers")
    theirs = tokenizers.Tokenizer(tokenizers.models.BPE())
    theirs.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    theirs.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<s>", "</s>"], show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
    theirs.train_from_iterator([open(__file__).read()], trainer)
    theirs.save(str(tmp_path / "tokenizer.json"))
    ours = data.Tokenizer(str(tmp_path))
    for text in ("def test(): return 1", "naïve café, 北京", "<s>a</s>"):
        assert ours.encode(text) == theirs.encode(text).ids
        assert ours.decode(theirs.encode(text).ids) == theirs.decode(theirs.encode(text).ids)
    assert ours.id_of("</s>") == 1 and ours.token_of(0) == "<s>" and ours.is_special(0)
    assert len(ours) == theirs.get_vocab_size() and ours.id_of("absent") is None
    again = data.Tokenizer.from_json(data.Tokenizer.json_of(str(tmp_path)))
    assert again.encode("naïve café") == ours.encode("naïve café")
    (tmp_path / "bad.json").write_text(json.dumps({"model": 3}))
    with pytest.raises(weft.DataError, match="bad.json"):
        data.Tokenizer(str(tmp_path / "bad.json"))


def test_instructions_learn_the_answers_alone(tmp_path):
    words = {word: i for i, word in enumerate(["<end>", "[user]", "[bot]", "a", "b", "c", "?"])}
    (tmp_path / "tokenizer.json").write_text(json.dumps({
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "?"},
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "added_tokens": []}))
    rows_of_file = [{"prompt": "a b ", "completion": "c"},
                    {"messages": [{"role": "user", "content": "b"},
                                  {"role": "assistant", "content": "a c"}]}]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows_of_file)))
    chat = data.ChatTemplate(
        "{% for m in messages %}{% if m.role == 'user' %}[user] {{ m.content }} {% else %}[bot] "
        "{% generation %}{{ m.content }} {% endgeneration %}{% endif %}{% endfor %}")
    source = data.instructions(tmp_path / "rows.jsonl", data.Tokenizer(str(tmp_path)), 6, chat, 0)
    inputs, labels = rows(data.Loader(source, batch_size=2))
    assert inputs[0, :3].tolist() == [3, 4, 5] and labels[0].tolist() == [-100, 5, 0] + [-100] * 3
    assert inputs[1, :4].tolist() == [1, 4, 2, 3]
    assert labels[1].tolist() == [-100, -100, 3, 5, -100, -100]


def test_chat_templates():
    jinja2 = brought.imported("jinja2")
    text = ("{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ eos }}{% endfor %}"
            "{% if add_generation_prompt %}<assistant>{% endif %}")
    messages = [{"role": "user", "content": "Grüße"}, {"role": "assistant", "content": "Hi"}]
    ours = data.ChatTemplate(text, {"eos": "</s>"})
    for prompt in (False, True):
        assert ours.render(messages, add_generation_prompt=prompt) == jinja2.Template(text).render(
            messages=messages, eos="</s>", add_generation_prompt=prompt)
