#!/usr/bin/env python3
"""Writes docs/bad-input.md: what the tests of refusals ask of weft, with what it answers.

    tools/bad_input.py BUILD    BUILD: the folder that holds weft and tests/error
"""
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

PAGE = pathlib.Path("docs/bad-input.md")
CODES = {0: "a warning, and the run goes on", 1: "failed", 2: "usage or recipe",
         3: "the plan does not fit", 4: "data", 5: "checkpoint", 6: "a loss that is not finite", 7: "device"}
LONGEST = 160  # characters of a command
# What depends on the host: the sets that it lacks, its cores, its memory.
HOST = [(r"WEFT_ISA=\w+: (this processor has no more than) [\w, ]+", r"WEFT_ISA=...: \1 ..."),
        (r"share \d+ of (.*) than \d+ would", r"share ... of \1 than ... would"),
        (r"; \d+ compute", "; ... compute"), (r"/[0-9a-f]{16}\.o", "/....o"),
        (r"set \w+ and goes on with \w+: (.*)=\w+", r"set ... and goes on with ...: \1=..."),
        (r"can have (?!0\.)[\d.]+ GiB", "can have ... GiB")]
# Rows that a host with every set, or with many cores, would not have.
ANYWHERE = {
    (2, "WEFT_ISA=...: this processor has no more than ...."): "WEFT_ISA=... weft list",
    (0, "100 threads share ... of this process's cores, which takes longer than ... would"):
        "WEFT_THREADS=100 weft train tiny.yaml --json --overwrite",
}
HEAD = """# Bad input

What weft answers to what it cannot take: the exit code, and its first line without `weft: error: ` or `weft: warning: `.
One line names what is wrong, where, and the limit. `tools/bad_input.py` wrote this page from the tests (`tests/error`),
which hold each answer; folders of tests, and what depends on the host, are shown as `...`. One core, a locale with
decimal commas and a kernel cache of another instruction set change nothing and are not named (`host_test`,
`locale_test`, `cache_test`).

## What bytes from outside may claim

| bytes | limit |
|---|---|
| a recipe | 1 MiB of UTF-8 without control characters, 32 levels, no aliases |
| JSON of a vocabulary, of a run's log, of another file of a checkpoint | 64 MiB, 1 GiB, 16 MiB |
| the header of safetensors | 100 MB, rank 8; offsets must cover the file, each byte once |
| the header of IDX | rank 8, extents below 2^31; plain: exactly the bytes that follow |
| gzip | what its bytes can inflate to (1,032 times as much), and what this machine has of memory |
| text | 4 GiB a file |
| recipes may come from a pipe; all else | regular files: no folder, device, FIFO, socket or loop of links |
"""


def refusals(build):
    """(command, code, first line) of each, once."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "refusals")
        environment = dict(os.environ, WEFT=str(build / "weft"), SRC=os.getcwd(), BUILD=str(build),
                           RECORD_REFUSALS=str(path))
        environment.setdefault("WEFT_DATA_DIR", str(pathlib.Path("../shared/data").resolve()))
        HOST.append((re.escape(environment["WEFT_DATA_DIR"]), "..."))
        subprocess.run([build / "tests/error", "--test-suite-exclude=slow*"], env=environment,
                       check=True, stdout=subprocess.DEVNULL)
        lines = path.read_text(encoding="utf-8").splitlines()
    seen = dict(ANYWHERE)
    for line in lines:
        entry = json.loads(line)
        says = re.sub("^weft: (error|warning): ", "", entry["says"].split("\n")[0])
        command, says = (shown(text) for text in (entry["command"], says))
        if entry["code"] in CODES and len(command) <= LONGEST:
            seen.setdefault((entry["code"], says), command)
    return seen


def shown(text):
    """Without the folders of a test, and as a table can hold it."""
    text = re.sub(r"/tmp/weft-test-\w+", "...", text)
    text = text.replace(os.getcwd() + "/", "")
    for pattern, words in HOST:
        text = re.sub(pattern, words, text)
    return re.sub(r"\s+", " ", text.replace("|", "\\|").replace("`", "'"))


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    by_code = collections.defaultdict(list)
    for (code, says), command in refusals(pathlib.Path(sys.argv[1]).resolve()).items():
        by_code[code].append((command, says))
    text = HEAD
    for code, rows in sorted(by_code.items()):
        text += f"\n## Exit code {code}: {CODES[code]}\n\n| command | answer |\n|---|---|\n"
        text += "".join(f"| `{command}` | {says} |\n" for command, says in sorted(rows))
    PAGE.write_text(text, encoding="utf-8")
    print(f"{PAGE}: {sum(map(len, by_code.values()))} refusals")


if __name__ == "__main__":
    main()
