#!/usr/bin/env python3
"""Holds docs/from-pytorch.md against the example that it says its lines stand in."""
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def rows():
    for line in (ROOT / "docs/from-pytorch.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 3 and "`" in cells[2]:
            yield cells


def joined(code):
    """As one line, however it is broken and indented."""
    return re.sub(r"\s+", "", code)


class FromPyTorch(unittest.TestCase):
    def test_every_line_of_weft_stands_in_the_example(self):
        example = joined((ROOT / "examples/06_from_pytorch.cpp").read_text(encoding="utf-8"))
        for what, _, weft in rows():
            for code in re.findall(r"`([^`]+)`", weft):
                self.assertIn(joined(code), example, what)

    def test_at_least_twenty_things_are_set_side_by_side(self):
        self.assertGreater(len(list(rows())), 20)


if __name__ == "__main__":
    unittest.main()
