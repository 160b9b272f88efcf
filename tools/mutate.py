#!/usr/bin/env python3
"""Seeds one-line faults in the library, and asks which of them the quick tests notice.

    tools/mutate.py weft/optim weft/io/text.cpp --count 15 --seed 1

Each mutant is one changed token or one dropped statement of a .cpp file, drawn at random. It is
compiled, linked into the library, and run against the quick tests of its folder, which stop at
their first failure. A crash, a failed test and five times the usual duration kill it. What does not
compile is not counted; what compiles to the same object code is equivalent. The report, in Markdown,
lists what survived. Everything happens in a copy of the tree, in build/mutants.
"""
import argparse
import collections
import functools
import json
import os
import pathlib
import random
import re
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

SOURCE = pathlib.Path(__file__).resolve().parent.parent
TREE = SOURCE / "build" / "mutants"  # its own build is TREE/build/release, as in any checkout
BUILD = TREE / "build" / "release"

# Which test programs belong to a folder of weft/, the quickest first.
TESTS = {
    "passes": ["passes", "ops"],
    "codegen": ["codegen", "ops"],
    "runtime": ["runtime", "train", "models"],
    "ops": ["ops"],
    "optim": ["optim"],
    "train": ["train"],
    "io": ["io", "data"],
    "data": ["data"],
}

# ---- what may be mutated -------------------------------------------------------------------------

LITERAL = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<mark>[^()\\ ]*)\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])*'", re.DOTALL)
# Assertions, messages, and what tests read of an op: with their parentheses or braces.
UNTOUCHED = re.compile(
    r"\b(?:WEFT_ASSERT|static_assert|assert|fmt::format|fmt::print)\s*\(|\.test = \{|\.reserve\(")
SKIPPED_LINE = re.compile(r"^\s*(#|using |namespace |template|typedef |class |struct |enum |throw )")


def blank(text, start, end):
    """The same text with spaces in place of [start, end), line ends kept."""
    return text[:start] + re.sub(r"[^\n]", " ", text[start:end]) + text[end:]


def code_of(text):
    """Source in which comments, literals, and the arguments of assertions and messages are blank."""
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


# A pattern with one group, and what may take that group's place. clang-format writes binary
# operators between spaces, and templates, pointers and references without.
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
STATEMENT = re.compile(  # a call, an assignment, a jump: nothing that declares
    r"^\s*(?:if \(.*\) |else |for \(.*\) )?((?:(?:\+\+|--|\*)?[a-z_][\w.:]*"
    r"(?:(?:->|\.)\w+|\[[^;]*?\]|\([^;]*?\))*(?:(?: [-+*/|&]?= [^;]+)|(?<=\)))"
    r"|(?:\+\+|--)[\w.\[\]>-]+|break|continue|return);)$")
WHOLE = re.compile(r"[;{}:]\s*$|^\s*$")  # how the line before a whole statement ends

Mutant = collections.namedtuple("Mutant", "line column old new")


def replacements(code, before):
    """Every (column, old, new) of one line of code; `before`: the line of code above it."""
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
    """By line, all mutants of a file."""
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
    """Brings the copy up to date; files that did not change keep their times."""
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
            "weft", "weft_program", *(f"test_{name}" for name in sorted(programs))], cwd=TREE)


class Compiler:
    """The commands of the build, for a changed source at a time."""

    def __init__(self):
        entries = json.loads((BUILD / "compile_commands.json").read_text())
        self.objects = {}
        for entry in entries:
            path, words = pathlib.Path(entry["file"]), shlex.split(entry["command"])
            output = words[words.index("-o") + 1]
            if path.is_relative_to(TREE / "weft") and "CMakeFiles/weft.dir/" in output:
                self.objects[str(path.relative_to(TREE))] = output
        self.library = self.command((BUILD / "libweft.so").resolve().name)

    @staticmethod
    def command(output):
        return demand(["ninja", "-t", "commands", "-s", output], cwd=BUILD).strip().split("\n")[-1]

    def compile(self, name, output):
        """Into `output`, with the flags of the build; whether that worked."""
        command = self.command(self.objects[name])
        command = re.sub(r" -MD -MT \S+ -MF \S+", "", command)
        command = command.replace(f"-o {self.objects[name]} ", f"-o {shlex.quote(str(output))} -w ")
        return run(["bash", "-c", command], cwd=BUILD).returncode == 0

    def link(self):
        return run(["bash", "-c", self.library], cwd=BUILD).returncode == 0


# ---- running tests -------------------------------------------------------------------------------

def limit_resources():
    resource.setrlimit(resource.RLIMIT_AS, (12 << 30, 12 << 30))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


@functools.cache
def environment_of(program):
    """What the program's quick tests run with in ctest."""
    shown = demand(["ctest", "--show-only=json-v1", "-R", f"^{program}$"], cwd=BUILD)
    [test] = json.loads(shown)["tests"]
    [variables] = [p["value"] for p in test["properties"] if p["name"] == "ENVIRONMENT"]
    return dict(variable.split("=", 1) for variable in variables)


def run_tests(program, cache, timeout, files=None):
    """None where all pass, else how the run ended. `files`: only tests of source files like that."""
    environment = os.environ | environment_of(program) | {"WEFT_CACHE_DIR": str(cache)}
    command = [str(BUILD / "tests" / program), "--test-suite-exclude=slow*", "--abort-after=1",
               "--minimal", *([f"--source-file={files}"] if files else [])]
    process = subprocess.Popen(command, cwd=TREE, env=environment, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, errors="replace",
                               start_new_session=True, preexec_fn=limit_resources)
    try:
        output = process.communicate(timeout=timeout)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.communicate()
        return f"{program}: too slow"
    if process.returncode == 0:
        return None
    if process.returncode < 0:
        return f"{program}: signal {-process.returncode}"
    case = re.search(r"TEST CASE: *(.*)", output)
    return f"{program}: {case[1].strip() if case else output.strip()[-200:]}"


class Hunt:
    def __init__(self, arguments):
        self.arguments = arguments
        self.compiler = Compiler()
        self.clean = {}
        self.rows, self.survivors = [], []

    def time_tests(self, programs):
        for program in programs:
            if program in self.clean:
                continue
            run_tests(program, TREE / "cache", None)  # fills the kernel cache
            start = time.monotonic()
            failure = run_tests(program, TREE / "cache", None)
            if failure:
                sys.exit(f"the unchanged tree fails its tests: {failure}")
            self.clean[program] = time.monotonic() - start

    def programs(self, folder):
        if folder not in TESTS:
            sys.exit(f"no tests are known for weft/{folder}; known: {', '.join(TESTS)}")
        return TESTS[folder]

    def try_mutant(self, name, mutant, original):
        """(verdict, detail): killed, survived, equivalent or invalid."""
        source, folder = TREE / name, pathlib.Path(name).parts[1]
        target = BUILD / self.compiler.objects[name]
        lines = original.split("\n")
        line = lines[mutant.line]
        lines[mutant.line] = line[:mutant.column] + mutant.new + line[mutant.column + len(mutant.old):]
        with tempfile.TemporaryDirectory(dir=TREE / "build") as scratch:
            scratch = pathlib.Path(scratch)
            shutil.copy(target, scratch / "kept.o")
            source.write_text("\n".join(lines))
            try:
                if not self.compiler.compile(name, scratch / "mutant.o"):
                    return "invalid", ""
                if (scratch / "mutant.o").read_bytes() == target.read_bytes():
                    return "equivalent", "the object code is the same"
                shutil.copy(scratch / "mutant.o", target)
                if not self.compiler.link():
                    return "invalid", ""
                cache = TREE / "cache"
                if folder == "codegen":  # kernels made by an unchanged generator must not be found
                    cache = scratch / "cache"
                nearest = f"*{source.stem}*"  # its own tests, if any, most likely notice
                for program in self.programs(folder):
                    for files in (nearest, None):
                        limit = max(20, 5 * self.clean[program])
                        if failure := run_tests(program, cache, limit, files):
                            return "killed", failure
                return "survived", ""
            finally:
                source.write_text(original)
                shutil.copy(scratch / "kept.o", target)

    def hunt(self, where):
        """`count` mutants of a file or folder that compile to something else."""
        files = [where] if where.endswith(".cpp") else sorted(
            name for name in self.compiler.objects if name.startswith(where.rstrip("/") + "/"))
        files = [name for name in files if name in self.compiler.objects]
        if not files:
            sys.exit(f"{where}: no sources of the library there")
        self.time_tests(self.programs(pathlib.Path(files[0]).parts[1]))
        lines = []
        for name in files:
            for number, here in mutants_of(SOURCE / name).items():
                lines.append((name, here))
        draw = random.Random(f"{where} {self.arguments.seed}")
        draw.shuffle(lines)
        counts = collections.Counter()
        for name, here in lines:
            if counts["killed"] + counts["survived"] >= self.arguments.count:
                break
            mutant = draw.choice(here)
            original = (SOURCE / name).read_text()
            verdict, detail = self.try_mutant(name, mutant, original)
            counts[verdict] += 1
            line = original.split("\n")[mutant.line]
            shown = line[:mutant.column] + mutant.new + line[mutant.column + len(mutant.old):]
            print(f"{verdict:10} {name}:{mutant.line + 1}: `{line.strip()}` -> `{shown.strip()}` "
                  f"{detail}", file=sys.stderr, flush=True)
            if verdict == "survived":
                self.survivors.append((f"{name}:{mutant.line + 1}", line.strip(), shown.strip()))
        self.rows.append((where, counts))
        self.compiler.link()  # of the unchanged objects again

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
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="for the first build")
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
