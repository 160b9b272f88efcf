"""Checks that the compiler refuses each of these calls, and shows a sentence about it.

The sentences are messages of static_assert, or stand beside deleted functions, whose lines compilers
show.
"""
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

WRONG = [
    ("max(x, 0.5);", "not an axis: write maximum(x, 0.5)"),
    ("min(x, 0.5);", "not an axis: write minimum(x, 0.5)"),
    ("norm(x, 1);", "write norm(x, {.axes = {1}}) or norm(x, {}, 1)"),
    ("(void)(x && y);", "write a & b"),
    ("(void)(x || y);", "write a | b"),
    ("x[0] = y;", "x[0] = y would change nothing: see update_at"),
    ("x[0] = 1;", "nor would x[0] = 1: see update_at"),
    ("if (x > 0) return;", "bool"),
    ("compile([](const Tensor& t) { return std::pair(1, t); });",
     "A function for compile() returns a Tensor, a std::vector<Tensor>, a std::pair"),
    ("compile([](int n) { return n; });",
     "compile() takes a function that can be called with tensors"),
]


def flags_of_tests():
    """Returns the compiler of the tests and the flags that find the headers."""
    build = pathlib.Path(os.environ["BUILD"])
    commands = json.loads((build / "compile_commands.json").read_text())
    words = next(shlex.split(command["command"]) for command in commands
                 if "/test_runtime.dir/" in command["command"])
    compiler = next(word for word in words if "ccache" not in word)
    flags = [word for i, word in enumerate(words)
             if re.match(r"-(I|isystem|D|std=)", word) or words[i - 1] == "-isystem"]
    return [compiler, *flags]


def main():
    lines = ["#include <weft/weft.h>", "using namespace weft;",
             "void wrong(Tensor x, Tensor y) {", *(call for call, _ in WRONG), "}"]
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "wrong.cpp"
        source.write_text("\n".join(lines) + "\n")
        done = subprocess.run([*flags_of_tests(), "-fsyntax-only", source], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    said, failed = " ".join(done.stdout.split()), []
    for number, (call, sentence) in enumerate(WRONG, 4):
        if not re.search(rf"wrong\.cpp:{number}:\d+: (error|note|  )", done.stdout):
            failed.append(f"{call} compiles")
        elif sentence not in said:
            failed.append(f"{call} does not say {sentence!r}")
    if failed:
        sys.exit("\n".join([done.stdout, *failed]))


if __name__ == "__main__":
    main()
