#!/usr/bin/env python3
"""Seeds one-line faults in the library, and asks which of them the quick tests notice.

    tools/mutate.py weft/optim weft/io/text.cpp --count 15 --seed 1

Each mutant is one changed token or one dropped statement of a .cpp file, drawn at random. It is
compiled, linked into a library of its own, and run against the quick tests of its folder, which stop
at their first failure. A crash, a failed test and ten times the usual duration kill it. What does
not compile is not counted; what compiles to the same object code is equivalent. The report, in
Markdown, lists what survived. Everything happens in a copy of the tree, in build/mutants.
"""
# This is one file because its steps, which draw mutants, compile them and run the tests, are used
# by nothing else.
import argparse
import collections
import concurrent.futures
import functools
import json
import os
import pathlib
import random
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SOURCE = pathlib.Path(__file__).resolve().parent.parent
TREE = SOURCE / "build" / "mutants"  # its own build is TREE/build/release, as in any checkout
BUILD = TREE / "build" / "release"

# The tests of each folder of weft/ by their names in ctest, fastest first. "train:FILES" selects
# the tests of that program in matching source files, which check what the folder's own tests
# cannot.
TESTS = {
    "passes": ["passes", "ops", "models:*rematerialize_test.cpp"],
    "codegen": ["codegen", "ops", "ops.cuda"],
    "runtime": ["runtime", "cli:*memory_test.cpp", "train", "models", "models.cuda"],
    "ops": ["ops"],
    "optim": ["optim"],
    "planner": ["train:*planner_test.cpp", "train:*plan_test.cpp", "train:*report_test.cpp",
                "train:*memory_test.cpp", "train:*offload_test.cpp", "error:*budget_test.cpp"],
    "infer": ["infer"],
    "artifact": ["artifact", "passes:*plan_json_test.cpp"],
    "train": ["train", "error", "cli"],
    "pictures": ["io:*image_test.cpp", "data:*resample_test.cpp", "train:*image_folder_test.cpp"],
    # Folders of GGUF files are made for models; syncing matters only after a power loss.
    "io": ["io", "data", "models:*gguf_test.cpp", "train:*disk_test.cpp"],
    "data": ["data"],
    "backends": ["backends", "ops"],
    "models": ["nn", "infer", "models"],
    # onnx.slow has the cases that `make test-onnx` leaves; training writes files anew.
    "onnx": ["onnx", "onnx.slow", "train:*onnx_test.cpp", "train:*imported_pruning_test.cpp",
             "error:*onnx_test.cpp", "cli:*run_test.cpp"],
}

# ---- what may be mutated -------------------------------------------------------------------------

LITERAL = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<mark>[^()\\ ]*)\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])*'", re.DOTALL)
# Assertions, messages, and test data of an op are not mutated, including their parentheses or
# braces.
UNTOUCHED = re.compile(
    r"\b(?:WEFT_ASSERT|static_assert|assert|fmt::format|fmt::print)\s*\(|\.test = \{|\.reserve\(")
SKIPPED_LINE = re.compile(r"^\s*(#|using |namespace |template|typedef |class |struct |enum |throw )")


def blank(text, start, end):
    """Replaces [start, end) by spaces and keeps line ends."""
    return text[:start] + re.sub(r"[^\n]", " ", text[start:end]) + text[end:]


def code_of(text):
    """Blanks comments, literals, and the arguments of assertions and messages."""
    for match in LITERAL.finditer(text):
        text = blank(text, match.start(), match.end())
    text = re.sub(r"(?m)^\s*#(?:.*\\\n)*.*", lambda m: re.sub(r"[^\n]", " ", m[0]), text)
    for match in UNTOUCHED.finditer(text):
        depth, end = 1, match.end()
        while depth and end < len(text):
            depth += (text[end] in "({") - (text[end] in ")}")
            end += 1
        text = blank(text, match.start(), end)
    return text


# A pattern with one group, and the replacements of that group. clang-format writes spaces around
# binary operators, and none in templates, pointers and references.
OPERATORS = [
    (r"(?<=[\w)\]] )(\+)(?= )", ["-"]), (r"(?<=[\w)\]] )(-)(?= )", ["+"]),
    (r"(?<=[\w)\]] )(\*)(?= )", ["/"]), (r"(?<=[\w)\]] )(/)(?= )", ["*"]),
    (r"(?<= )(%)(?= )", ["/"]),
    (r"(?<= )(<)(?= )", ["<=", ">="]), (r"(?<= )(<=)(?= )", ["<", ">"]),
    (r"(?<= )(>)(?= )", [">=", "<="]), (r"(?<= )(>=)(?= )", [">", "<"]),
    (r"(?<= )(==)(?= )", ["!="]), (r"(?<= )(!=)(?= )", ["=="]),
    (r"(?<= )(&&)(?= )", ["||"]), (r"(?<= )(\|\|)(?= )", ["&&"]),
    (r"(?<= )(\+=)(?= )", ["-=", "="]), (r"(?<= )(-=)(?= )", ["+=", "="]),
    (r"(?<= )(\*=)(?= )", ["/=", "="]),
    (r"(\+\+)", ["--"]), (r"(--)(?=\w)", ["++"]),
    (r"\b(true)\b", ["false"]), (r"\b(false)\b", ["true"]),
    (r"\b(?:std|ranges)::(min)\(", ["max"]), (r"\b(?:std|ranges)::(max)\(", ["min"]),
    (r"\b(begin)\(\)", ["end"]), (r"\b(front)\(\)", ["back"]), (r"\b(back)\(\)", ["front"]),
    (r"(?<=\()(!)(?=\w)", [""]), (r"(?<= )(!)(?=\w)", [""]),
]
OPERATORS = [(re.compile(pattern), places) for pattern, places in OPERATORS]
INTEGER = re.compile(r"(?<![\w.'])(\d+)(?![\w.'])")
FLOAT = re.compile(r"(?<![\w.'])(\d+\.\d*(?:e[+-]?\d+)?)(?=f?\b|f?[^\w])")
CONDITION = re.compile(r"\b(?:if|while) \((.*)\)(?: \{| [\w*+-].*;| return.*)?$")
RETURN = re.compile(r"^\s*(?:if \(.*\) |else )?return ([^;{]+);$")
STATEMENT = re.compile(  # a call, an assignment, a jump: no declaration
    r"^\s*(?:if \(.*\) |else |for \(.*\) )?((?:(?:\+\+|--|\*)?[a-z_][\w.:]*"
    r"(?:(?:->|\.)\w+|\[[^;]*?\]|\([^;]*?\))*(?:(?: [-+*/|&]?= [^;]+)|(?<=\)))"
    r"|(?:\+\+|--)[\w.\[\]>-]+|break|continue|return);)$")
WHOLE = re.compile(r"[;{}:]\s*$|^\s*$")  # the end of the line before a complete statement

Mutant = collections.namedtuple("Mutant", "line column old new")


def mutated(line, mutant):
    return line[:mutant.column] + mutant.new + line[mutant.column + len(mutant.old):]


def replacements(code, before):
    """Yields every (column, old, new) of one line of code; `before`: the line above it."""
    for pattern, places in OPERATORS:
        for match in pattern.finditer(code):
            for new in places:
                yield match.start(1), match[1], new
    for match in INTEGER.finditer(code):
        value = int(match[1])
        for new in sorted({value + 1, max(value - 1, 0), 0} - {value}):
            yield match.start(1), match[1], str(new)
    for match in FLOAT.finditer(code):
        value = float(match[1])
        for new in sorted({value + 1, value - 1, 0.0} - {value}):
            yield match.start(1), match[1], f"({new})" if new < 0 else str(new)
    if (match := CONDITION.search(code)) and balanced(match[1]) and "=" not in match[1].split("==")[0]:
        yield match.start(1), match[1], None  # negated
    if (match := RETURN.match(code)) and balanced(match[1]):
        yield match.start(1), match[1], "{}"
    if WHOLE.search(before) and (match := STATEMENT.match(code)) and balanced(match[1]):
        yield match.start(1), match[1], ";"


def balanced(text):
    depth = 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        if depth < 0:
            return False
    return depth == 0


def mutants_of(path):
    """Returns all mutants of a file by line."""
    text = path.read_text()
    lines, found, before = text.split("\n"), {}, ""
    for number, code in enumerate(code_of(text).split("\n")):
        code = code.rstrip()
        if not SKIPPED_LINE.match(code):
            here = []
            for column, old, new in replacements(code, before):
                old = lines[number][column:column + len(old)]  # literals are blank in `code`
                here.append(Mutant(number, column, old, f"!({old})" if new is None else new))
            if here:
                found[number] = here
        if code.strip():
            before = code
    return found


# ---- the tree of the mutants ---------------------------------------------------------------------

def run(command, **options):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          **options)


def demand(command, **options):
    result = run(command, **options)
    if result.returncode != 0:
        sys.exit(f"{shlex.join(map(str, command))} failed:\n{result.stdout[-4000:]}")
    return result.stdout


def copy_tree():
    """Updates the copy; unchanged files keep their times."""
    listed = demand(["git", "ls-files", "-co", "--exclude-standard"], cwd=SOURCE).split("\n")
    wanted = {name for name in listed if name and (SOURCE / name).is_file()}
    for name in wanted:
        source, target = SOURCE / name, TREE / name
        if target.is_file() and target.read_bytes() == source.read_bytes():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
    for folder in ("weft", "tests"):
        for path in (TREE / folder).rglob("*"):
            if path.is_file() and str(path.relative_to(TREE)) not in wanted:
                path.unlink()


def build(programs, jobs):
    demand(["cmake", "--preset", "release"], cwd=TREE)
    demand(["cmake", "--build", "--preset", "release", "-j", str(jobs), "--target",
            "weft", "weft_program",
            *sorted({f"test_{re.split('[.:]', name)[0]}" for name in programs}),
            *(["fake_cuda"] if any(".cuda" in name for name in programs) else [])], cwd=TREE)


class Compiler:
    """The commands of the build, applied to one changed source at a time."""

    def __init__(self):
        entries = json.loads((BUILD / "compile_commands.json").read_text())
        self.objects, self.commands = {}, {}
        for entry in entries:
            path, words = pathlib.Path(entry["file"]), shlex.split(entry["command"])
            output = words[words.index("-o") + 1]
            if path.is_relative_to(TREE / "weft") and "_objects.dir/" in output:
                name = str(path.relative_to(TREE))
                self.objects[name], self.commands[name] = output, words
        # Each library: the name by which programs load it, its file, the words that link it.
        self.libraries = []
        for path in sorted({path.resolve() for path in BUILD.glob("libweft*.so")}):
            made = demand(["ninja", "-t", "commands", "-s", path.name], cwd=BUILD).strip().split("\n")[-1]
            [link] = [part for part in made.split(" && ") if f" -o {path.name} " in part]
            [soname] = re.findall(r"-soname,(\S+)", link)
            self.libraries.append((soname, path, shlex.split(link)))

    def compile(self, name, text, folder):
        """Returns the object file in `folder`, or None where compilation failed."""
        source, output = folder / pathlib.Path(name).name, folder / "changed.o"
        source.write_text(f'#line 1 "{TREE / name}"\n{text}')
        other = {self.objects[name]: output, str(TREE / name): source}
        words = [other.get(word, word) for word in self.commands[name]] + ["-w"]
        return output if run(words, cwd=BUILD).returncode == 0 else None

    def link(self, name, changed, folder):
        """Links the object's library with `changed` in its place into `folder`, and puts the other
        libraries and the program next to it, which loads them. Returns whether this succeeded."""
        os.link(BUILD / "weft", folder / "weft")
        linked = False
        for soname, path, words in self.libraries:
            if self.objects[name] in words:
                other = {self.objects[name]: changed, path.name: folder / soname}
                linked = run([other.get(word, word) for word in words], cwd=BUILD).returncode == 0
            else:
                os.link(path, folder / soname)
        return linked


# ---- running tests -------------------------------------------------------------------------------

def prepare_process():
    # A background job ignores interrupts, by which a test stops a run.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # Limits data, not address space: with less of that, fewer threads would compute.
    resource.setrlimit(resource.RLIMIT_DATA, (12 << 30, 12 << 30))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


@functools.cache
def test_named(name):
    """Returns the command of a ctest test and its environment."""
    shown = demand(["ctest", "--show-only=json-v1", "-R", f"^{re.escape(name)}$"], cwd=BUILD)
    [test] = json.loads(shown)["tests"]
    [variables] = [p["value"] for p in test["properties"] if p["name"] == "ENVIRONMENT"]
    return test["command"], dict(variable.split("=", 1) for variable in variables)


def run_tests(name, libraries, cache, timeout, files=None):
    """Returns None where all tests pass, else how the run ended. `libraries`: the folder of the
    tested library; `files`: only tests of matching source files."""
    command, variables = test_named(name)
    environment = {"ONNX_CASES": str(SOURCE / "build" / "onnx-cases")} | os.environ | variables | {
        "WEFT": str(libraries / "weft"), "WEFT_CACHE_DIR": str(cache),
        "LD_LIBRARY_PATH": str(libraries)}
    command = command + ["--abort-after=1", "--minimal",
                         *([f"--source-file={files}"] if files else [])]
    process = subprocess.Popen(command, cwd=TREE, env=environment, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, errors="replace",
                               start_new_session=True, preexec_fn=prepare_process)
    try:
        output = process.communicate(timeout=timeout)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.communicate()
        return f"{name}: too slow"
    if process.returncode == 0:
        return None
    if process.returncode < 0:
        return f"{name}: signal {-process.returncode}"
    case = re.search(r"TEST CASE: *(.*)", output)
    return f"{name}: {case[1].strip() if case else output.strip()[-200:]}"


class Hunt:
    def __init__(self, arguments):
        self.arguments = arguments
        self.compiler = Compiler()
        self.clean, self.unchanged = {}, {}
        self.rows, self.survivors = [], []

    def time_tests(self, programs):
        for program in programs:
            if program in self.clean:
                continue
            name, _, files = program.partition(":")
            run_tests(name, BUILD, TREE / "cache", None, files)  # fills the kernel cache
            start = time.monotonic()
            failure = run_tests(name, BUILD, TREE / "cache", None, files)
            if failure:
                sys.exit(f"the unchanged tree fails its tests: {failure}")
            self.clean[program] = time.monotonic() - start

    def passes_unchanged(self, program, files, limit, cold):
        """Returns whether the same tests pass with the unchanged library; otherwise they prove
        nothing. `limit`: time limit in seconds; `cold`: with kernels to compile, as for the
        mutant."""
        key = (program, files, limit, cold)
        if key not in self.unchanged:
            with tempfile.TemporaryDirectory(dir=TREE / "build") as empty:
                cache = empty if cold else TREE / "cache"
                self.unchanged[key] = run_tests(program, BUILD, cache, limit, files) is None
        return self.unchanged[key]

    def programs(self, folder):
        if folder not in TESTS:
            sys.exit(f"no tests are known for weft/{folder}; known: {', '.join(TESTS)}")
        return TESTS[folder]

    def try_mutant(self, name, mutant):
        """Returns (verdict, detail): killed, survived, equivalent or invalid."""
        folder, stem = pathlib.Path(name).parts[1], pathlib.Path(name).stem
        lines = (TREE / name).read_text().split("\n")
        lines[mutant.line] = mutated(lines[mutant.line], mutant)
        with tempfile.TemporaryDirectory(dir=TREE / "build") as scratch:
            scratch = pathlib.Path(scratch)
            changed = self.compiler.compile(name, "\n".join(lines), scratch)
            if not changed:
                return "invalid", ""
            if changed.read_bytes() == (BUILD / self.compiler.objects[name]).read_bytes():
                return "equivalent", "the object code is the same"
            if not self.compiler.link(name, changed, scratch):
                return "invalid", ""
            cold = folder == "codegen"  # kernels of the unchanged generator must not be reused
            cache = scratch / "cache" if cold else TREE / "cache"
            nearest = f"*{stem}*"  # tests with the file's name most likely notice
            for program in self.programs(folder):
                test, _, chosen = program.partition(":")
                selects = chosen or any("--source-file=" in word for word in test_named(test)[0])
                for files in (chosen or None,) if selects else (nearest, None):
                    limit = max(30, 10 * self.clean[program])
                    failure = run_tests(test, scratch, cache, limit, files)
                    within = limit if failure and failure.endswith("too slow") else None
                    if failure and self.passes_unchanged(test, files, within, cold):
                        return "killed", failure
            return "survived", ""

    def hunt(self, where):
        """Tries `count` mutants of a file or folder that compile to different code."""
        files = [where] if where.endswith(".cpp") else sorted(
            name for name in self.compiler.objects if name.startswith(where.rstrip("/") + "/"))
        files = [name for name in files if name in self.compiler.objects]
        if not files:
            sys.exit(f"{where}: no sources of the library there")
        self.time_tests(self.programs(pathlib.Path(files[0]).parts[1]))
        lines = []
        for name in files:
            lines += [(name, here) for here in mutants_of(TREE / name).values()]
        draw = random.Random(f"{where} {self.arguments.seed}")
        draw.shuffle(lines)
        drawn = [(name, draw.choice(here)) for name, here in lines]
        counts = collections.Counter()
        with concurrent.futures.ThreadPoolExecutor(self.arguments.jobs) as pool:
            tried = [pool.submit(self.try_mutant, *one) for one in drawn]
            for (name, mutant), one in zip(drawn, tried):
                verdict, detail = one.result()
                counts[verdict] += 1
                line = (TREE / name).read_text().split("\n")[mutant.line]
                shown = mutated(line, mutant)
                print(f"{verdict:10} {name}:{mutant.line + 1}: `{line.strip()}` -> "
                      f"`{shown.strip()}` {detail}", file=sys.stderr, flush=True)
                if verdict == "survived":
                    self.survivors.append((f"{name}:{mutant.line + 1}", line.strip(), shown.strip()))
                if counts["killed"] + counts["survived"] >= self.arguments.count:
                    break
            pool.shutdown(cancel_futures=True)
        self.rows.append((where, counts))

    def report(self):
        text = ["| where | seed | killed | survived | equivalent | do not compile | score |",
                "|---|---|---|---|---|---|---|"]
        for where, counts in self.rows:
            tried = counts["killed"] + counts["survived"]
            score = f"{100 * counts['killed'] / tried:.0f} %" if tried else "-"
            text.append(f"| {where} | {self.arguments.seed} | {counts['killed']} | "
                        f"{counts['survived']} | {counts['equivalent']} | {counts['invalid']} | "
                        f"{score} |")
        if self.survivors:
            text += ["", "| survivor | original | mutated |", "|---|---|---|"]
        for place, line, shown in self.survivors:
            cells = (f"`{cell}`".replace("|", "\\|") for cell in (line, shown))
            text.append(f"| {place} | {' | '.join(cells)} |")
        return "\n".join(text) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("where", nargs="+", help="weft/FOLDER or weft/FOLDER/FILE.cpp")
    parser.add_argument("--count", type=int, default=15, help="mutants of each (default 15)")
    parser.add_argument("--seed", type=int, default=1, help="decides which (default 1)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="compiling, and mutants tried at once")
    parser.add_argument("--report", help="writes the report here, too")
    arguments = parser.parse_args()
    where = [str(pathlib.Path(w).resolve().relative_to(SOURCE)) for w in arguments.where]
    unknown = [w for w in where if len(pathlib.Path(w).parts) < 2
               or pathlib.Path(w).parts[0] != "weft" or pathlib.Path(w).parts[1] not in TESTS]
    if unknown:
        sys.exit(f"{unknown[0]}: not a file or folder of weft/{{{','.join(TESTS)}}}")
    copy_tree()
    build({program for w in where for program in TESTS[pathlib.Path(w).parts[1]]}, arguments.jobs)
    hunt = Hunt(arguments)
    for w in where:
        hunt.hunt(w)
    report = hunt.report()
    print(report, end="")
    if arguments.report:
        pathlib.Path(arguments.report).write_text(report)


if __name__ == "__main__":
    main()
