#!/usr/bin/env python3
"""Writes docs/bad-input.md: what the tests of refusals ask of weft, with what it answers.

    tools/bad_input.py BUILD           BUILD: the folder that holds weft and tests/error
    tools/bad_input.py BUILD --check   compares the page with what ctest's own runs of error and
                                       error.cuda recorded there
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
# Text that depends on the host or on weft's version: instruction sets, number of cores, memory.
HOST = [(r"WEFT_ISA=\w+: (this CPU has no more than) [\w, ]+", r"WEFT_ISA=...: \1 ..."),
        (r"share \d+ cores, (.*) than \d+ threads", r"share ... cores, \1 than ... threads"),
        (r"; \d+ are used", "; ... are used"), (r"/[0-9a-f]{16}\.o", "/....o"),
        (r"set \w+ and continues with \w+: (.*)=\w+", r"set ... and continues with ...: \1=..."),
        (r"checksum is [0-9a-f]{16}. The manifest says [0-9a-f]{16}",
         "checksum is .... The manifest says ..."),
        (r"can use (?!0\.)[\d.]+ GiB", "can use ... GiB"),
        (r"compiled for .*, up to .* This machine is", "compiled for .... This machine is"),
        (r"This machine is .*", "This machine is ...."), (r"and this is [\d.]+\.", "and this is ....")]
# Rows that a host with every instruction set, or with many cores, would not produce.
ANYWHERE = {
    (2, "WEFT_ISA=...: this CPU has no more than ...."): "WEFT_ISA=... weft list",
    (0, "100 threads share ... cores, which is slower than ... threads"):
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
| a tokenizer's file | 512 MiB of UTF-8, 500 levels, 16,777,214 merges; ids below the bytes of the file, or 1,048,576 if it is smaller |
| JSON of a vocabulary, of a run's log, of another file of a checkpoint | 64 MiB, 1 GiB, 16 MiB |
| the header of safetensors | 100 MB, rank 8; offsets must cover the file, each byte once |
| the header of GGUF | rank 4, versions 2 and 3; counts, lengths, offsets and sizes within the file, no arrays of arrays |
| `adapter_config.json`, a file of JSON lines | 1 MiB, 4 GiB; at most 65,536 labels |
| the index of a model folder, its `generation_config.json` | 64 MiB, 1 MiB; shards are plain names, and no link leaves the folder |
| any JSON | 500 levels |
| the header of IDX | rank 8, extents below 2^31; plain: exactly the bytes that follow |
| gzip | what its bytes can inflate to (1,032 times as much), and what this machine has of memory |
| the header of `.npy` | rank 8; exactly the bytes that follow; no pickled objects |
| `.npz` | members that do not overlap, stored or deflated, of at most 1,032 bytes for each in the file |
| a JPEG or PNG | 268,435,456 pixels, and what its bytes can hold (512 pixels a byte; 1,032 bytes of rows a byte); 100 scans |
| text | 4 GiB a file |
| CSV | UTF-8 names, as many fields a line as the header; numbers of the range of float32, which take up to eight times the bytes of the file |
| recipes may come from a pipe; all else | regular files: no folder, device, FIFO, socket or loop of links |
"""


def recorded(text):
    """Yields (code, first line) and command of each recorded refusal that the page can show."""
    for line in filter(None, text.split("\n")):  # no other character ends a line here
        entry = json.loads(line)
        says = re.sub("^weft: (error|warning): ", "", entry["says"].split("\n")[0])
        command, says = (shown(part) for part in (entry["command"], says))
        if entry["code"] in CODES and len(command) <= LONGEST:
            yield (entry["code"], says), command


def refusals(build):
    """Returns the first command of each (code, first line)."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "refusals")
        environment = dict(os.environ, WEFT=str(build / "weft"), SRC=os.getcwd(), BUILD=str(build),
                           RECORD_REFUSALS=str(path))
        environment.setdefault("WEFT_DATA_DIR", str(data_folder()))
        subprocess.run([build / "tests/error", "--test-suite-exclude=slow*"], env=environment,
                       check=True, stdout=subprocess.DEVNULL)
        seen = dict(ANYWHERE)
        for refusal, command in recorded(path.read_text(encoding="utf-8")):
            seen.setdefault(refusal, command)
    return seen


def data_folder():
    return pathlib.Path(os.environ.get("WEFT_DATA_DIR") or "../shared/data").resolve()


def shown(text):
    """Replaces the folders of a test and escapes the text for a table."""
    text = re.sub(r"/tmp/weft-test-\w+", "...", text)
    text = text.replace(os.getcwd() + "/", "")
    for pattern, words in [(re.escape(str(data_folder())), "..."), *HOST]:
        text = re.sub(pattern, words, text)
    text = re.sub(r"\s+", " ", text.replace("|", "\\|").replace("`", "'"))
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)


def comparable(rows):
    """Reduces rows to what is equal on all hosts. Bytes and times of a plan, and suggested changes,
    depend on threads and speed; the step at which numbers overflow depends on rounding."""
    for (code, says), command in rows:
        if code in (3, 6):
            says = re.sub(r"\d[\d.]*( [KMGTP]iB)?", "#", re.sub(" (Hint:|No smaller) .*", "", says))
            command = re.sub(r"\d[\d.]*", "#", command)
        yield (code, says), command


def check(build):
    """Compares the page with the records: missing rows and stale rows."""
    page, code = set(), None
    for line in PAGE.read_text(encoding="utf-8").split("\n"):
        if heading := re.match(r"## Exit code (\d+)", line):
            code = int(heading[1])
        elif code is not None and (row := re.match(r"\| `(.*?)` \| (.*) \|$", line)):
            page.add(((code, row[2]), row[1]))
    page = set(comparable(page))
    rows = set(comparable(ANYWHERE.items()))
    for name in ("error", "error.cuda"):
        record = build / "refusals" / name
        if not record.exists():
            sys.exit(f"bad-input: no {record}. Hint: make test test-cuda.")
        rows.update(comparable(recorded(record.read_text(encoding="utf-8"))))
    lacks = {refusal for refusal, _ in rows} - {refusal for refusal, _ in page}
    # Some tests are skipped without data sets.
    stale = page - rows if data_folder().is_dir() else set()
    for code, says in sorted(lacks):
        print(f"bad-input: {PAGE} has no row of exit code {code}: {says}")
    for (code, says), command in sorted(stale):
        print(f"bad-input: nothing answers as {PAGE} has it, with exit code {code}: {command}: {says}")
    if lacks or stale:
        sys.exit(f"bad-input: {PAGE} is not what the tests ask. Hint: make bad-input.")
    print(f"bad-input: {PAGE} is right, {len(page)} refusals")


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[2:] not in ([], ["--check"]):
        sys.exit(__doc__)
    if sys.argv[2:]:
        check(pathlib.Path(sys.argv[1]).resolve())
        return
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
