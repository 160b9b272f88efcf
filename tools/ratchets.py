#!/usr/bin/env python3
"""Counts what makes weft harder to change, and holds each count at its ceiling, which may only fall.

    tools/ratchets.py [ROOT]       checks ROOT/weft (default: this repository)
    tools/ratchets.py --list NAME  shows where the things of one count are
    tools/ratchets.py --self-test  checks the counting

A count below its ceiling fails, too: the change that lowered it lowers the ceiling. tools/check_layers
does both.
"""

import bisect
import pathlib
import re
import sys

SOURCE = pathlib.Path(__file__).resolve().parent.parent
TABLE = "train/recipe/keys.toml"

# Name -> (ceiling, description). Only ops/ should know its operations by name, only the table of
# recipes its keys by text; a static that changes is state of the process.
CEILINGS = {
    "op-names": (64, "operations by name outside of ops/ and of ONNX's tables"),
    "long-files": (29, "files above 400 lines"),
    "long-functions": (17, "functions above 60 lines"),
    "keys-by-text": (6, "keys of recipes by text outside of their table"),
    "keys-of-entries": (10, "keys that data sets and losses add, by text: each once, where it is declared"),
    "recipe-edits": (16, "values of a recipe set by code outside of it"),
    "mutable-statics": (37, "mutable statics without a reason beside or before them"),
    "dynamic-casts": (17, "dynamic casts"),
}

# ---- reading sources -----------------------------------------------------------------------------

LITERAL = re.compile(r'R"(?P<mark>[^()\\ ]*)\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/'
                     r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'", re.DOTALL)


def code_of(text):
    """Blanks comments, literals and lines of the preprocessor; every line stays where it is."""
    text = LITERAL.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    return re.sub(r"(?m)^\s*#(?:.*\\\n)*.*", lambda found: re.sub(r"[^\n]", " ", found[0]), text)


SCOPE = re.compile(r"\b(namespace|class|struct|union|enum|extern)\b[^()=]*$")
CONTROL = re.compile(r"^\s*(for|if|else|while|switch|do|return|catch)\b")


def functions_of(text):
    """Yields the first line and the number of lines of each function that is in no other one."""
    code = code_of(text)
    starts = [0, *(found.end() for found in re.finditer("\n", code))]
    line_of = lambda at: bisect.bisect_right(starts, at)
    header, inside, open_at = 0, None, []  # inside: (depth, first line) of the function that is open
    for found in re.finditer(r"[{};]", code):
        at = found.start()
        if found[0] == "{":
            head = code[header:at]
            is_block = head[-1:].isspace() or not head  # not the braces of x{1}
            open_at.append(header if not is_block else None)
            if is_block and inside is None and "(" in head and not SCOPE.search(head) and \
                    not CONTROL.match(head) and not re.search(r"=\s*$", head):
                inside = len(open_at), line_of(header + len(head) - len(head.lstrip()))
        elif found[0] == "}" and open_at:
            if inside is not None and len(open_at) == inside[0]:
                yield inside[1], line_of(at) - inside[1] + 1
                inside = None
            before = open_at.pop()
            if before is not None:
                header = before
                continue
        header = found.end() if found[0] != "{" or open_at[-1] is None else header


# ---- the counts ----------------------------------------------------------------------------------


def lines_with(pattern, text):
    """Returns the line of each match."""
    return [1 + text.count("\n", 0, found.start()) for found in re.finditer(pattern, text)]


STATIC = re.compile(r"^\s*(?:inline )?(?:static thread_local|thread_local|static) (?!const\b|constexpr)(.*)$")


def mutable_statics(path, text):
    """Returns the lines of variables that live as long as the process or a thread and change, where
    no comment is beside them or before their block."""
    lines, found, has_reason = text.splitlines(), [], False
    for number, line in enumerate(lines, 1):
        static = STATIC.match(line)
        rest = static[1] if static else ""
        while (plain := re.sub(r"<[^<>]*>", "", rest)) != rest:
            rest = plain
        is_variable = static and ("=" in rest.split("(")[0] or "{" in rest.split("(")[0] or
                                  re.match(r"^[\w:&* ]+;", rest) or
                                  (path.endswith(".cpp") and re.search(r'\("', rest)))
        if not is_variable:
            has_reason = line.lstrip().startswith("//")
        elif not has_reason and "//" not in line:
            found.append(number)
    return found


# A key of a section to which entries of registries add keys; a name of a file is none.
ENTRY_KEY = re.compile(r"(data|loss|optimizer|scheduler)\.(?!(?:jsonl?|yaml|bin|txt|onnx)$)[a-z_0-9]+")


def string_literals(text):
    """Yields the line and the contents of each string that is code."""
    for found in LITERAL.finditer(text):
        if found[0].startswith('"'):
            yield 1 + text.count("\n", 0, found.start()), found[0][1:-1]


def count(sources):
    """Returns the places of each count, as (path under weft/, line). `sources`: path -> text."""
    places = {name: [] for name in CEILINGS}
    keys = set(re.findall(r"(?m)^\[([a-z0-9_]+(?:\.[a-z0-9_]+)+)\]", sources.get(TABLE, "")))
    for path, text in sources.items():
        if path == TABLE:
            continue
        def add(name, lines):
            places[name] += [(path, line) for line in lines]
        if not path.startswith(("ops/", "onnx/export/")):
            add("op-names", lines_with(r'\bis\("|op->name [!=]= "', text))
        if text.count("\n") > 400:
            add("long-files", [1])
        add("long-functions", [line for line, length in functions_of(text) if length > 60])
        add("keys-by-text", [line for number, line in enumerate(text.splitlines(), 1)
                             for line in [number] * sum(key in keys for key in
                                                        re.findall(r'"([a-z0-9_.]+)"', line))])
        add("keys-of-entries", [line for line, literal in string_literals(text)
                                if ENTRY_KEY.fullmatch(literal) and literal not in keys])
        if not path.startswith("train/recipe/"):
            add("recipe-edits", lines_with(r'\.set\((?:"[a-z_]+\.|keys::)|\brecipe\.set\([a-z]', text))
        add("mutable-statics", mutable_statics(path, text))
        add("dynamic-casts", lines_with(r"\bdynamic_cast<", code_of(text)))
    return places


def sources_of(root):
    return {file.relative_to(root).as_posix(): file.read_text(encoding="utf-8")
            for file in sorted(root.rglob("*"))
            if file.suffix in (".h", ".cpp", ".inc", ".cu", ".cl", ".toml")}


# ---- the check of the counting -------------------------------------------------------------------

LONG = "  x();\n" * 60
CASES = [  # a count, a file under weft/, its text, how often it counts
    ("op-names", "train/a.cpp", 'if (x->is("relu") || x->op->name == "gelu") y();\n', 2),
    ("op-names", "ops/a.cpp", 'x->is("relu");\n', 0),
    ("long-files", "ir/a.h", "\n" * 401, 1),
    ("long-files", "ir/a.h", "\n" * 400, 0),
    ("long-functions", "ir/a.cpp", "namespace weft {\nint f(int x)\n    : y_{x} {\n" + LONG + "}\n}\n", 1),
    ("long-functions", "ir/a.cpp", "class A {\n  int f() const {\n" + LONG[7:] + "  }\n};\n", 1),
    ("long-functions", "ir/a.cpp", "int f() {\n" + LONG[14:] + "}\n", 0),
    ("long-functions", "ir/a.cpp", "const A all[] = {\n" + LONG + "};\n", 0),
    ("long-functions", "ir/a.cpp", 'auto text = R"(void f() {\n' + LONG + '})";\n', 0),
    ("mutable-statics", "ir/a.cpp", "  static std::map<A, std::vector<B>> all;\n", 1),
    ("mutable-statics", "ir/a.cpp", "  // Steps share it.\n  static std::mutex mutex;\n  static A all;\n", 0),
    ("mutable-statics", "ir/a.cpp", "thread_local bool inside = false;  // of a region\n", 0),
    ("mutable-statics", "ir/a.cpp", "static const A all;\nstatic A make(int x);\n", 0),
    ("mutable-statics", "ir/a.cpp", "static std::function<int()> hook;\n", 1),
    ("dynamic-casts", "ir/a.cpp", "// dynamic_cast<A*>\nauto* a = dynamic_cast<A*>(b);\n", 1),
    ("recipe-edits", "cli/a.cpp", 'recipe.set("train.steps", "1");\n', 1),
    ("recipe-edits", "cli/a.cpp", 'recipe.set(keys::train::steps, "1");\n', 1),
    ("recipe-edits", "cli/a.cpp", 'for (auto& [key, value] : all) recipe.set(key, value);\n', 1),
    ("keys-of-entries", "cli/a.cpp", 'recipe.text("data.own") + "train.steps" + "data.txt";  // "data.own"\n', 1),
    ("keys-by-text", "cli/a.cpp", 'recipe.text("train.steps") + recipe.text("train.other");\n', 1),
]


def self_test():
    table = '[train.steps]\ntype = "integer"\n'
    wrong = 0
    for name, path, text, expected in CASES:
        got = len(count({TABLE: table, path: text})[name])
        if got != expected:
            wrong += 1
            print(f"self test: {name} of {text[:60]!r}: expected {expected}, got {got}")
    print(f"ratchets: self test, {len(CASES) - wrong} of {len(CASES)} right")
    return wrong


def main(arguments):
    if arguments == ["--self-test"]:
        return 1 if self_test() else 0
    if len(arguments) == 2 and arguments[0] == "--list" and arguments[1] in CEILINGS:
        for path, line in count(sources_of(SOURCE / "weft"))[arguments[1]]:
            print(f"weft/{path}:{line}")
        return 0
    if len(arguments) > 1:
        print(__doc__)
        return 2
    places = count(sources_of(pathlib.Path(arguments[0] if arguments else SOURCE) / "weft"))
    wrong = 0
    for name, (ceiling, words) in CEILINGS.items():
        got = len(places[name])
        if got != ceiling:
            wrong += 1
            hint = f"tools/ratchets.py --list {name}" if got > ceiling else f"lower its ceiling to {got}"
            print(f"tools/ratchets.py:1: {words}: {got}, and the ceiling is {ceiling}. Hint: {hint}.")
    held = ", ".join(f"{ceiling} {name}" for name, (ceiling, _) in CEILINGS.items())
    print(f"ratchets: {wrong} wrong" if wrong else f"ratchets: {held}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
