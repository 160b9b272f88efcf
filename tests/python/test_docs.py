"""Runs the blocks of docs/python.md, in their order, as one program."""

import pathlib
import re

import brought

torch = brought.imported("torch")

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "python.md"


def test_every_block_of_the_page_runs(tmp_path, monkeypatch, capsys):
    from torch._dynamo.backends import registry

    import weft.torch

    if "weft" not in registry.list_backends(exclude_tags=()):  # the source tree is not installed
        registry.register_backend(weft.torch.backend, name="weft")
    torch._dynamo.reset()
    weft.torch.report().reset()
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text()
    lines = text.splitlines(keepends=True)
    blocks = []
    for match in re.finditer(r"^```python\n(.*?)^```", text, re.M | re.S):
        begin = text[: match.start(1)].count("\n")
        blocks.append("\n" * begin + match.group(1))
    assert len(blocks) > 5 and lines
    scope = {"__name__": "docs"}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), scope)
    assert not weft.torch.report().fallbacks
    printed = capsys.readouterr().out
    assert "forward" in printed and "h100" in printed
    assert (tmp_path / "net.weft").exists()
