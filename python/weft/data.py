"""Data sets, loaders and tokenizers of the C++ library: samples in batches of tensors.

    for images, labels in weft.data.mnist("train").batches(128, shuffle=True): ...
    for x, y in weft.data.Loader((x, y), batch_size=64, shuffle=True, seed=0): ...

A thread prepares batches ahead. Their order depends on the seed and the epoch alone.
"""

import json
import os
from collections.abc import Iterator

from ._weft import Tensor, UsageError, _data
from ._weft._data import (ImageDataset, Source, TableColumns, TextCodec, TextDataset, TokenDataset,
                          Tokenizer, masked, random_images, random_tokens)

__all__ = [
    "ChatTemplate", "ImageDataset", "Loader", "Source", "Table", "TableColumns", "TextCodec",
    "TextDataset", "TokenDataset", "Tokenizer", "cifar10", "fashion_mnist", "image_dataset",
    "images_from_cifar", "images_from_idx", "instructions", "masked", "mnist", "random_images",
    "random_tokens", "read_table", "text",
]


class Loader:
    """Returns samples in batches; each `for` over it is the next epoch.

    source: a Source, an ImageDataset, or a pair of arrays (inputs [N, ...], labels [N, ...]).
    Labels of whole numbers become i64, fractions are targets, f32. A short last batch has fewer
    rows, unless drop_last. prefetch: batches that a thread prepares ahead; 0: none, and no thread.
    """

    def __init__(self, source, batch_size=1, shuffle=False, drop_last=False, seed=0,
                 prefetch=2) -> None:
        if isinstance(source, (tuple, list)):
            source = _data.array_source(*source)
        if batch_size < 1:
            raise UsageError(f"[loader] batch_size is at least 1. Got {batch_size}.")
        self.source = source.source() if isinstance(source, ImageDataset) else source
        self.epoch = 0  # of the next pass
        self.batch_size = batch_size
        self._options = dict(batch_size=batch_size, shuffle=shuffle, drop_last=drop_last,
                             seed=seed, prefetch=prefetch)

    def __len__(self) -> int:
        """Returns the number of batches of an epoch."""
        whole, rest = divmod(len(self.source), self.batch_size)
        return whole + (rest > 0 and not self._options["drop_last"])

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        epoch, self.epoch = self.epoch, self.epoch + 1
        return _data.batches(self.source, epoch=epoch, **self._options)


# ---- images


def image_dataset(name, split, root=None) -> ImageDataset:
    """Loads "mnist", "fashion-mnist" or "cifar10"; `split` is "train" or "test".

    Files are searched under `root`, or else WEFT_DATA_DIR; nothing is downloaded. Images f32
    [C, H, W] are normalized by the mean and deviation of the training images; labels are i64.
    """
    return _data.image_dataset(name, split, None if root is None else os.fspath(root))


def mnist(split, root=None) -> ImageDataset:
    return image_dataset("mnist", split, root)


def fashion_mnist(split, root=None) -> ImageDataset:
    return image_dataset("fashion-mnist", split, root)


def cifar10(split, root=None) -> ImageDataset:
    return image_dataset("cifar10", split, root)


def images_from_idx(images, labels, classes=0) -> ImageDataset:
    """Reads IDX files: u8 images [N, H, W] or [N, C, H, W], and u8 labels [N]."""
    return _data.images_from_idx(os.fspath(images), os.fspath(labels), classes)


def images_from_cifar(paths) -> ImageDataset:
    """Reads files in the binary format of CIFAR-10."""
    return _data.images_from_cifar([os.fspath(path) for path in paths])


# ---- text


def text(path, tokenizer="characters", val_path="", val_split=0.1, vocabulary=None,
         special_tokens=True) -> TextDataset:
    """Reads a text file as tokens: .train and .validation (TokenDataset), and .vocabulary.

    tokenizer: "characters" or "bytes". vocabulary: a Tokenizer, or an earlier text's.
    """
    if isinstance(vocabulary, Tokenizer):
        vocabulary = TextCodec(vocabulary)
    return _data.text(os.fspath(path), tokenizer, os.fspath(val_path), val_split, vocabulary,
                      special_tokens)


def instructions(path, tokenizer, seq_len, chat=None, end=None, packed=False,
                 last_answer=False) -> Source:
    """Reads instruction data, a JSON object a line: {"text"}, {"prompt", "completion"}, messages.

    Returns samples of inputs and labels i64 [seq_len]; a label that is not learned is -100.
    chat: a ChatTemplate, which writes conversations. end: the id that ends a text or completion.
    packed: a row holds several samples, and inputs are [2, seq_len]: tokens and positions.
    last_answer: only the last answer of a conversation is learned. DataError names file and line.
    """
    return _data.instructions(os.fspath(path), tokenizer, seq_len, chat and chat._template, end,
                              packed, last_answer)


class ChatTemplate:
    """Writes a conversation as the text that a model was trained on, as transformers does.

    ChatTemplate.load("folder") reads that of a published model, a folder or a GGUF file.
    """

    def __init__(self, text, special_tokens=(), name="template") -> None:
        """text: the template in Jinja2. special_tokens: {"bos_token": "<s>"}."""
        self._template = _data.ChatTemplate(text, list(dict(special_tokens).items()), name)

    @classmethod
    def load(cls, model, with_tools=False) -> "ChatTemplate | None":
        """Returns the template of a model; None if it has none."""
        return cls._of(_data.chat_template(os.fspath(model), with_tools))

    @classmethod
    def _of(cls, template):
        if template is None:
            return None
        made = cls.__new__(cls)
        made._template = template
        return made

    def render(self, messages, add_generation_prompt=False, tools=None, documents=None,
               **extra) -> str:
        """Returns the text of messages: [{"role": "user", "content": "Hello"}, ...].

        add_generation_prompt ends the text where the answer begins. `extra` are further variables
        of the template, such as enable_thinking=False. DataError: the template refuses them.
        """
        return self._template.render_json(json.dumps(messages), add_generation_prompt,
                                          json.dumps(tools), json.dumps(documents),
                                          json.dumps(extra))


# ---- tables


class Table:
    """The rows of a CSV file, whose first record names the columns. See read_table()."""

    def __init__(self, table) -> None:
        self._table = table
        self.name, self.features, self.targets = table.name, table.features, table.targets

    def __len__(self) -> int:
        return len(self._table)

    def columns(self, rows=None) -> TableColumns:
        """Returns means and deviations of columns over `rows`, and the classes of all rows."""
        return self._table.columns(self._all(rows))

    def source(self, rows=None, columns=None) -> Source:
        """Returns samples of `rows`, normalized by `columns`, or else by those of the rows."""
        rows = self._all(rows)
        return self._table.source(rows, columns or self._table.columns(rows))

    def _all(self, rows):
        return list(range(len(self))) if rows is None else list(rows)


def read_table(path, targets, features=(), classes=False, separator=",") -> Table:
    """Reads a CSV file: `targets` and `features` name columns; no features: all others.

    classes: the only target is a class, any text; else targets are numbers.
    """
    targets = [targets] if isinstance(targets, str) else list(targets)
    return Table(_data.read_table(os.fspath(path), targets, list(features), classes, separator))
