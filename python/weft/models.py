"""The models of weft by name, and published ones with their weights.

    model = weft.models.load("models/SmolLM2-135M")       # a folder, a GGUF file, or a run
    print(model.generate("The meaning of life is", max_new_tokens=40))
    for piece in model.stream("Once upon a time"): print(piece, end="", flush=True)
"""

import codecs
import json
import os
import queue
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload

from ._weft import UsageError, _models
from ._weft._models import Encoder, Generated, Model, Pretrained
from .data import ChatTemplate

__all__ = ["Encoder", "Generated", "Model", "Pretrained", "TextModel", "load", "load_pretrained",
           "make", "names"]


def names() -> dict[str, str]:
    """Returns the models that make() knows, each with a sentence about it."""
    return dict(_models.names())


def make(name, config=None, *, kind, input, classes, vocabulary=0) -> Model:
    """Makes a model of the zoo, with initial values: `make("mlp", kind="images", ...)`.

    config: options under the names of Hugging Face's config.json; the others follow from the task.
    kind: "features", "images" or "tokens". input: the shape of one sample, [features], [C, H, W]
    or [length]. classes: logits of a sample, or of a token, whose vocabulary they are.
    vocabulary: the ids of tokens whose sample has one label; 0: each token has a label.
    UsageError names the option and its limit.
    """
    return _models.make(name, json.dumps(config or {}), kind, input, classes, vocabulary)


def load_pretrained(path, dtype=None, map=True, weights=True) -> Pretrained:
    """Reads a published model, a folder or a GGUF file: .model maps tokens [B, T] to logits.

    dtype: of weights and activations, or else that of the files. map: weights are views of the
    files where they can be. weights=False: zeros, which take no memory.
    """
    return _models.load_pretrained(os.fspath(path), dtype, map, weights)


def load(name, device="", dtype=None, adapter="") -> "TextModel":
    """Loads a language model that writes text, as `weft generate` does.

    name: a folder of Hugging Face's, a GGUF file, a compiled model, or a run, by its folder or
    name. adapter: a folder of PEFT's with an adapter of it. UsageError: it writes no text.
    """
    return TextModel(_models.load(os.fspath(name), device, dtype, os.fspath(adapter)))


def config(self):
    """The options that make() needs to make the model again."""
    return json.loads(self.config_json)


Model.config = property(config)


Prompt = str | Sequence[int] | Sequence[Mapping[str, Any]]


class TextModel:
    """A language model with its tokenizer, and the defaults of its generation_config.json."""

    def __init__(self, text) -> None:
        self._text = text
        self.name, self.vocabulary, self.context = text.name, text.vocabulary, text.context
        self.codec = text.codec
        self.chat_template = ChatTemplate._of(text.chat_template)

    @property
    def model(self) -> Model | None:
        """The net, tokens [B, T] to logits [B, T, vocabulary]; None for a compiled model."""
        return self._text.model

    def encode(self, text, special_tokens=True) -> list[int]:
        return self.codec.encode(text, special_tokens)

    def decode(self, ids) -> str:
        return self.codec.decode(ids)

    @overload
    def generate(self, prompt: Prompt, max_new_tokens: int = 0, context: int = 0,
                 **sampling: Any) -> str: ...
    @overload
    def generate(self, prompt: Sequence[Prompt], max_new_tokens: int = 0, context: int = 0,
                 **sampling: Any) -> list[str]: ...
    def generate(self, prompt, max_new_tokens=0, context=0, **sampling):
        """Returns the text after a prompt, or the list of texts after a list of prompts.

        A prompt is a text, a list of ids, or a conversation: a list of messages, which the model's
        chat template writes. max_new_tokens 0: as the model says, or 200. context: most tokens of
        a sequence; 0: as many as the model takes.
        sampling: temperature (0: always the likeliest), top_k, top_p, min_p, repetition_penalty,
        presence_penalty, frequency_penalty, seed, stop (a list of texts); what is not given is as
        the model says.
        """
        prompts = prompt if _is_list_of_prompts(prompt) else [prompt]
        texts = [each.text for each in self.generated(prompts, max_new_tokens, context, **sampling)]
        return texts if prompts is prompt else texts[0]

    def generated(self, prompts, max_new_tokens=0, context=0, **sampling) -> list[Generated]:
        """Does the same for a list of prompts, and returns the tokens and why each text ended."""
        return self._run(prompts, max_new_tokens, context, sampling, None)

    def stream(self, prompt, max_new_tokens=0, context=0, **sampling) -> Iterator[str]:
        """Returns an iterator over the pieces of the text, as the model writes them."""
        return _Stream(lambda on_text: self._run([prompt], max_new_tokens, context, sampling,
                                                 on_text))

    def _run(self, prompts, max_new_tokens, context, sampling, on_text):
        context = context or self.context
        ids = [self._ids(prompt, context) for prompt in prompts]
        return self._text.generate(ids, max_new_tokens, context, _models.Sampling(**sampling),
                                   on_text)

    def _ids(self, prompt, context):
        if isinstance(prompt, str):
            return self._text.ids(prompt, context)
        if prompt and isinstance(prompt[0], dict):
            if self.chat_template is None:
                raise UsageError(f"{self.name} has no chat template: a prompt is a text")
            written = self.chat_template.render(prompt, add_generation_prompt=True)
            return self.codec.encode(written, False)
        return list(prompt)


def _is_list_of_prompts(prompt):
    return not isinstance(prompt, str) and bool(prompt) and isinstance(
        prompt[0], (str, list, tuple))


class _Ended(Exception):
    """Ends a generation whose text nobody reads any more."""


def _write(run, pieces, ended):
    decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def on_text(_, piece):
        if ended.is_set():
            raise _Ended
        pieces.put(decoder.decode(piece))

    try:
        run(on_text)
        pieces.put(decoder.decode(b"", True))
        pieces.put(StopIteration())
    except BaseException as error:  # which the reader raises
        pieces.put(error)


def _end(thread, ended):
    ended.set()
    if thread is not threading.current_thread():
        thread.join()


class _Stream:
    """Runs a generation on a thread, which ends with the stream, and iterates over its text."""

    def __init__(self, run) -> None:
        self._pieces, self._ended = queue.SimpleQueue(), threading.Event()
        thread = threading.Thread(target=_write, args=(run, self._pieces, self._ended), daemon=True)
        self.close = weakref.finalize(self, _end, thread, self._ended)
        thread.start()

    def __iter__(self):
        return self

    def __next__(self):
        while not self._ended.is_set():
            try:
                piece = self._pieces.get()
            except KeyboardInterrupt:
                self.close()
                raise
            if isinstance(piece, BaseException):
                self._ended.set()
                raise piece
            if piece:
                return piece
        raise StopIteration
