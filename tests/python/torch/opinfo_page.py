#!/usr/bin/env python3
"""Writes docs/torch-operators.md: which of PyTorch's OpInfo operators are not whole, and why.

    opinfo.py --json forward.jsonl; opinfo.py --grad --json gradients.jsonl
    opinfo_page.py forward.jsonl gradients.jsonl
"""

import collections
import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))  # which test_opinfo imports from

import test_opinfo  # noqa: E402

PAGE = pathlib.Path(__file__).parents[3] / "docs" / "torch-operators.md"
HEAD = """# PyTorch's operators

PyTorch's own samples (OpInfo, in float32, else in integers) of {count} operators through the table of ATen operations, three
samples of each: {forward} are whole in their results, all samples in plans alone with torch's numbers, and {gradients} in their
gradients. The others are below with their reason; what has no rule runs in torch between plans, and is counted. `tests/python/torch/opinfo_page.py`
writes this page from the runs that `make test-all` holds to these numbers.
"""


def reason_of(operator, row):
    name, kind = row["operator"], row["class"]
    if name in test_opinfo.UNINITIALIZED:
        return "results have no defined elements"
    if name in test_opinfo.RANDOM:
        return "random, with other bits than torch's"
    if name in test_opinfo.ROUNDING:
        return "a gradient that is rounding alone"
    if kind == "error" and name in test_opinfo.NOT_CAPTURED:
        return "cannot be captured, as sizes or branches depend on elements"
    if kind == "skipped":
        return "no samples in a type that weft has, or no gradients"
    reasons = [re.sub(r"\s+", " ", reason) for reason in row["reasons"]]
    return "; ".join(dict.fromkeys(reasons))[:160] or kind


def section(title, rows):
    by_reason = collections.defaultdict(list)
    for row in rows:
        if row["class"] != "whole":
            part = " (in part)" if row["class"] == "part" else ""
            by_reason[reason_of(row["operator"], row)].append(f"`{row['operator']}`{part}")
    lines = [f"\n## {title}\n", "| reason | operators |", "|---|---|"]
    for reason, operators in sorted(by_reason.items(), key=lambda each: -len(each[1])):
        lines.append(f"| {reason.replace('|', '/')} | {', '.join(operators)} |")
    return "\n".join(lines) + "\n"


def main():
    forward, gradients = (
        [json.loads(line) for line in pathlib.Path(file).read_text().splitlines()]
        for file in sys.argv[1:3])

    def whole(rows):
        return sum(row["class"] == "whole" for row in rows)

    PAGE.write_text(
        HEAD.format(count=len(forward), forward=whole(forward), gradients=whole(gradients))
        + section("Results", forward) + section("Gradients", gradients))


if __name__ == "__main__":
    main()
