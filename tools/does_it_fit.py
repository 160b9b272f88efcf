#!/usr/bin/env python3
"""Writes docs/does-it-fit.md: whether a Llama of 7B trains on four GPUs, why, and what would make it fit.

    tools/does_it_fit.py WEFT    WEFT: the program

Every change that a refusal suggests is planned in its turn; the page is not written where one does not fit.
"""
import os
import pathlib
import re
import shlex
import subprocess
import sys

PAGE = pathlib.Path("docs/does-it-fit.md")
RECIPE = "recipes/llama-7b.yaml"
GPUS = ["a100", "h100", "h200", "rtx4090"]
PRECISIONS = ["fp32", "bf16-mixed", "bf16"]
TOKENS = ["--tokens", "1B"]
HEAD = """# Does it fit?

Someone wants to train Llama 2 7B on tokens of their own, 4,096 at a time, and asks which GPU to rent. Nothing below
ran on a GPU: `weft plan` compiles the whole step (forward, backward, AdamW) for each of them on any machine, and
counts. `tools/does_it_fit.py` wrote this page, and planned each change that is named; with `WEFT_PATIENCE=120` a refusal
looks for such changes for two minutes instead of ten seconds. \"At 1.57 times the step time\" is, where a plan is refused, of the
time of that plan, had it the memory; where one fits and others are quicker, of the time of that plan.
"""

# Explanations by precision.
NOTES = {"bf16-mixed": """
Weights and moments are float32 here, too, 75.3 GiB of them, and at the least that a step can be planned in the rest is
larger than in fp32: the sum that passes through all layers stays float32, and beside it and the weights products read
copies in bfloat16. So an H100 is too small by 0.4 GiB where fp32 just fits.
"""}

NORM = """
## With a limit of the gradients' norm

The norm of all gradients is known when the last of them is, so a limit (`train.grad_clip`) keeps them all until then,
25 GiB in float32. The peak without recomputation stays where it was: activations are most where no gradient exists yet.
But the least that the step can be planned in is now at the end of the backward pass, where recomputation saves nothing.
"""


class Session:
    def __init__(self, weft):
        self.weft = weft
        self.text = HEAD

    def run(self, *arguments):
        """Returns exit code, output and errors; refusals search for changes as long as they
        need."""
        done = subprocess.run([self.weft, *arguments], capture_output=True, text=True,
                              env=dict(os.environ, WEFT_PATIENCE="120"))
        return done.returncode, done.stdout, done.stderr

    def show(self, arguments, output):
        self.text += f"\n```\n$ weft {shlex.join(arguments)}\n{output.rstrip()}\n```\n"

    def one(self, precision, gpu, more=()):
        """Plans for one GPU, and for a refusal plans each change that is said to fit."""
        arguments = ["plan", RECIPE, "--precision", precision, "--on", gpu, *TOKENS, *more]
        code, output, errors = self.run(*arguments)
        if code not in (0, 3):
            sys.exit(f"weft {shlex.join(arguments)}: {errors}")
        self.show(arguments, verdict_of(output) if code == 0 else output + errors)
        for change in changes_of(output if code == 0 else errors):
            own = [] if "--precision" in change else ["--precision", precision]
            kept = [] if "--train.grad_clip" in change else more
            changed = ["plan", RECIPE, *own, "--on", gpu, *TOKENS, *kept, *shlex.split(change)]
            code, output, errors = self.run(*changed)
            if code != 0:
                sys.exit(f"weft {shlex.join(changed)} was said to fit: {errors}")
            self.show(changed, verdict_of(output))

    def write(self):
        for precision in PRECISIONS:
            self.text += f"\n## In {precision}\n" + NOTES.get(precision, "")
            arguments = ["plan", RECIPE, "--precision", precision, "--on", ",".join(GPUS), *TOKENS]
            self.show(arguments, self.run(*arguments)[1])
            for gpu in GPUS:
                self.one(precision, gpu)
        self.text += NORM
        self.one("bf16-mixed", "h100", ["--train.grad_clip", "1"])
        PAGE.write_text(self.text, encoding="utf-8")


def verdict_of(output):
    """Returns the text of a plan before its tables."""
    return output.split("\n\n")[0]


def changes_of(errors):
    """Returns ["--train.micro_batch_size 1", ...] of a hint, or of faster changes."""
    hint = " ".join(re.split("Hint: |Quicker: ", errors, maxsplit=1)[1:]).partition("\n\n")[0]
    hint = re.sub(r"\s+", " ", hint)
    return [match.strip() for match in re.findall(r"((?:--\S+ (?:'[^']*'|\S+) )+)fits", hint)]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    Session(sys.argv[1]).write()
    print(PAGE)
