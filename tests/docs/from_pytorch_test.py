#!/usr/bin/env python3
"""Compares docs/from-pytorch.md with the example that contains its lines, and the length of
examples with that of the same programs in PyTorch."""
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def rows():
    for line in (ROOT / "docs/from-pytorch.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 4 and "`" in cells[2]:
            yield cells


def joined(code):
    """Returns the code without white space, so that line breaks do not matter."""
    return re.sub(r"\s+", "", code)


def lines_of(path, comment):
    """Returns the number of lines that are neither empty nor a comment."""
    lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    return sum(1 for line in lines if line and not line.startswith(comment))


class FromPyTorch(unittest.TestCase):
    def test_every_line_of_weft_stands_in_the_example(self):
        example = joined((ROOT / "examples/06_from_pytorch.cpp").read_text(encoding="utf-8"))
        for what, _, weft, _ in rows():
            for code in re.findall(r"`([^`]+)`", weft):
                self.assertIn(joined(code), example, what)

    def test_at_least_twenty_things_are_set_side_by_side(self):
        self.assertGreater(len(list(rows())), 20)

    def test_a_program_takes_at_most_half_as_many_lines_again_as_in_pytorch(self):
        programs = sorted((ROOT / "tests/docs/pytorch").glob("*.py"))
        self.assertGreaterEqual(len(programs), 2)
        for program in programs:
            ours = lines_of(ROOT / "examples" / f"{program.stem}.cpp", "//")
            self.assertLessEqual(ours, 1.5 * lines_of(program, "#"), program.stem)


if __name__ == "__main__":
    unittest.main()
