"""Models by name and published ones, beside transformers."""

import os
import pathlib
import runpy
import signal
import threading
import time

import brought
import numpy as np
import pytest

import weft
from weft import models

torch = brought.imported("torch")
# transformers imports torchvision, whose operators are declared as long as this lives.
MEDIA = runpy.run_path(str(pathlib.Path(__file__).parent / "torch" / "media.py"))
transformers = brought.imported("transformers")
tokenizers = brought.imported("tokenizers")

TEMPLATE = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}[assistant]"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A published model as transformers saves it: a tiny Llama with a tokenizer of bytes."""
    path = tmp_path_factory.mktemp("llama")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=256, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
        initializer_range=0.3, bos_token_id=None, eos_token_id=None)
    net = transformers.LlamaForCausalLM(config).eval()
    net.save_pretrained(path)
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.BPE({each: i for i, each in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, chat_template=TEMPLATE).save_pretrained(path)
    return path, net, tokenizer


def expected(net, tokenizer, prompt, count):
    ids = torch.tensor([tokenizer.encode(prompt).ids])
    made = net.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=count,
                        do_sample=False, pad_token_id=0)
    return made[0, ids.shape[1]:].tolist()


def test_a_published_model_has_the_logits_of_transformers(folder):
    path, net, _ = folder
    tokens = np.random.default_rng(0).integers(0, 256, (2, 7))
    published = models.load_pretrained(path)
    with torch.no_grad():
        logits = net(torch.from_numpy(tokens)).logits.numpy()
    np.testing.assert_allclose(np.asarray(published.model(tokens)), logits, atol=2e-4)
    assert published.vocabulary == 256 and published.context == 128 and published.dtype == "f32"
    assert published.model.config["hidden_size"] == 32


def test_text_is_generated_as_by_transformers(folder):
    path, net, tokenizer = folder
    model = models.load(path)
    made = model.generated(["Hello", "To be"], max_new_tokens=12, temperature=0)
    for prompt, each in zip(["Hello", "To be"], made):
        assert each.tokens == expected(net, tokenizer, prompt, 12) and each.finish == "length"
    assert model.generate("Hello", 12, temperature=0) == made[0].text
    assert model.generate(["Hello"], 12, temperature=0) == [made[0].text]
    assert model.generate(model.encode("Hello"), 12, temperature=0) == made[0].text


def test_a_gguf_file_writes_the_same_text(folder, tmp_path):
    file = str(tmp_path / "a.gguf")
    assert weft._weft.main(["weft", "convert", str(folder[0]), file, "--to", "gguf"]) == 0
    assert models.load(file).generate("Hello", 12, temperature=0) == models.load(
        folder[0]).generate("Hello", 12, temperature=0)


def test_sampling_follows_the_seed(folder):
    model = models.load(folder[0])
    first, same, other = (model.generate("Hello", 24, temperature=1.0, seed=seed)
                          for seed in (1, 1, 2))
    assert first == same != other


def test_pieces_arrive_as_they_are_written(folder):
    model = models.load(folder[0])
    whole = model.generate("Hello", 40, temperature=0)
    pieces = list(model.stream("Hello", 40, temperature=0))
    assert "".join(pieces) == whole and len(pieces) > 3
    stream = model.stream("Hello", 100, temperature=0)
    next(stream)
    stream.close()
    assert list(stream) == []
    with pytest.raises(weft.UsageError, match="temperature"):
        list(model.stream("Hello", temperature=-3))


def test_a_conversation_is_written_by_the_chat_template(folder):
    model = models.load(folder[0])
    messages = [{"role": "user", "content": "Hi"}]
    assert model.chat_template.render(messages) == "[user]Hi[assistant]"
    assert model.generate(messages, 8, temperature=0) == model.generate(
        model.encode("[user]Hi[assistant]"), 8, temperature=0)


def test_other_names_are_refused(tmp_path):
    with pytest.raises(weft.Error, match="nothing-here"):
        models.load(tmp_path / "nothing-here")


def test_the_zoo_makes_modules():
    assert {"mlp", "resnet", "gpt"} <= set(models.names())
    net = models.make("mlp", {"hidden_sizes": [16]}, kind="images", input=(1, 4, 4), classes=3)
    assert [name for name, _ in net.named_parameters()] == [
        "fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]
    assert net(np.zeros((2, 1, 4, 4), "f4")).shape == (2, 3)
    assert net.config["hidden_sizes"] == [16]
    with pytest.raises(weft.UsageError, match="hidden_size"):
        models.make("mlp", {"hidden_size": 16}, kind="images", input=(1, 4, 4), classes=3)


def test_a_published_model_trains(folder):
    net = models.load_pretrained(folder[0]).model
    optimizer = weft.optim.AdamW(net.parameters(), lr=3e-3)

    @weft.compile
    def step(tokens, labels):
        loss = weft.cross_entropy(net(tokens), labels)
        optimizer.step(weft.grad(loss, net.parameters()))
        return loss

    tokens = np.random.default_rng(1).integers(0, 256, (4, 9))
    losses = [step(tokens[:, :-1], tokens[:, 1:]).item() for _ in range(10)]
    assert losses[-1] < losses[0] - 1


def test_a_run_s_model_writes_text(tmp_path):
    (tmp_path / "a.txt").write_text("abcdefgh " * 200)
    result = weft.train(
        {"name": "letters", "model": {"name": "gpt", "config": {
            "num_hidden_layers": 1, "hidden_size": 32, "num_attention_heads": 2}},
         "data": {"format": "text", "path": str(tmp_path / "a.txt"), "seq_len": 32},
         "train": {"steps": 60, "global_batch_size": 8}, "optimizer": {"lr": 1e-2}},
        runs=tmp_path, quiet=True)
    model = models.load(result.run_folder)
    started = time.time()
    assert model.generate("abc", 6, temperature=0) == "defgh "
    assert model.model.input_kind == "tokens"
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        model.generate("abc", 10**9)
    assert time.time() - started < 20
