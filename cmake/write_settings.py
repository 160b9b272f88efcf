#!/usr/bin/env python3
"""Writes settings.h and settings.cpp from the keys of recipes.

    cmake/write_settings.py weft/train/recipe/keys.toml BUILD/generated/weft/train/recipe

keys.toml says what a key is, once: from each entry come a row of the table that the parser, the
flags, the schema and the reference page read (RecipeKey), a typed field of Settings, and the
constant by which code names the key where it must, as in messages (keys::train::memory). Fields:

    type             text, integer, number, boolean, numbers, texts, bytes, map, layers, transforms
    default          as YAML; absent: null, and the field is a std::optional
    word             a word for which the field is absent, as for null: "auto"
    choices          the words that are allowed, where no registry has them
    enum             the C++ enumeration of these words, of train unless it has a home elsewhere
    enumerators      their names there, if they are not the words
    min, max         range of numbers; without max: any
    rule             what a value must be, where type and range do not say it
    flag, flag_help  a short flag, and its line of --help ({choices}: the allowed words)
    rivals           keys that cannot be set beside it
    same_on_resume   a run resumes with the value that it began with
    decides_tensors  which tensors a checkpoint has, or their types
    turns_on         a value with which the key turns its section on: the section's other keys need it
    is_input         the path of what a run reads, which no output may replace
    help             the line of the reference
"""

import pathlib
import sys
import textwrap
import tomllib

FIELDS = {"type", "default", "word", "choices", "enum", "enumerators", "min", "max", "rule", "flag",
          "flag_help", "rivals", "turns_on", "same_on_resume", "decides_tensors", "is_input", "help"}
TYPES = {"text": "std::string", "integer": "int64_t", "number": "double", "boolean": "bool",
         "numbers": "std::vector<double>", "texts": "std::vector<std::string>", "bytes": "int64_t",
         "map": "nn::Options", "layers": "std::vector<nn::LayerSpec>",
         "transforms": "std::vector<TransformSpec>"}
# Enumerations that stand elsewhere, and the headers that declare them.
HEADERS = {"Category": "weft/ir/variable.h", "DType": "weft/base/numbers/dtype.h",
           "Recompute": "weft/ir/step_options.h", "optim::PruningPattern": "weft/optim/pruning.h",
           "optim::Rounding": "weft/optim/optimizer.h"}
NOTICE = "// Written by cmake/write_settings.py from weft/train/recipe/keys.toml.\n"


def quoted(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


class Key:
    def __init__(self, section, name, entry):
        self.section, self.name, self.entry = section, name, entry
        self.path = f"{section}.{name}" if section else name
        if unknown := entry.keys() - FIELDS:
            sys.exit(f"keys.toml: {self.path}: unknown field {', '.join(sorted(unknown))}")
        self.type, self.help = entry["type"], entry["help"]
        if self.type not in TYPES:
            sys.exit(f"keys.toml: {self.path}: unknown type {self.type}")
        self.default, self.word = entry.get("default", "null"), entry.get("word")
        self.choices, self.enum = entry.get("choices", []), entry.get("enum")
        self.enumerators = entry.get("enumerators", self.choices)
        self.is_list = self.type == "texts"
        self.is_optional = self.word is not None or self.default == "null"

    def value_type(self):
        if self.enum:
            return f"std::vector<{self.enum}>" if self.is_list else self.enum
        return TYPES[self.type]

    def field(self, indent):
        """Returns the member of Settings, below its help."""
        help = self.help + (f"; absent: {self.word}" if self.word else "")
        comment = textwrap.wrap(help, 100, initial_indent=f"{indent}// ", subsequent_indent=f"{indent}// ",
                                break_long_words=False, break_on_hyphens=False)
        member = (f"std::optional<{self.value_type()}> {self.name};" if self.is_optional else
                  f"{self.value_type()} {self.name}{self.initializer()};")
        return "\n".join([*comment, indent + member, ""])

    def initializes(self):
        return self.enum and not self.is_list and not self.is_optional

    def initializer(self):
        if self.initializes():
            return f" = {self.enum}::{self.enumerators[self.choices.index(self.default)]}"
        if self.type == "text":
            return f" = {quoted(self.default)}"
        if self.type in ("numbers", "texts"):
            items = [item.strip() for item in self.default.strip("[]").split(",") if item.strip()]
            return " = {" + ", ".join(map(quoted, items) if self.is_list else items) + "}"
        return "" if self.type in ("map", "transforms") else f" = {self.default}"

    def constant(self):
        return f"keys::{self.section}::{self.name}" if self.section else f"keys::{self.name}"

    def row(self):
        entry, parts = self.entry, [f".path = {self.constant()}", f".type = KeyType::{self.type}",
                                    f".initial = {quoted(self.default)}"]
        words = ([self.word] if self.word else []) + self.choices
        if self.choices:
            parts.append(f".choices = {quoted(', '.join(words))}")
        if "min" in entry or "max" in entry:
            parts += [f".low = {entry.get('min', 0)}", f".high = {entry.get('max', 'most_exact')}"]
        for name in ("help", "flag", "flag_help"):
            if name in entry:
                parts.append(f".{name} = {quoted(entry[name])}")
        if "rivals" in entry:
            parts.append(f".rivals = {quoted(', '.join(entry['rivals']))}")
        parts += [f".{name} = true" for name in ("same_on_resume", "decides_tensors", "is_input")
                  if entry.get(name)]
        parts += [f".{name} = {quoted(entry[name])}" for name in ("word", "rule", "turns_on") if name in entry]
        return "    {" + ",\n     ".join(parts) + "},\n"

    def assignment(self):
        """Returns the entry that gives the field the value of a recipe."""
        field = f"settings.{self.path}"
        if self.enum:
            reader = f"{'list_of' if self.is_list else 'value_of'}<{self.enum}>(value, {self.words()})"
        elif self.type == "bytes":
            reader = "bytes_of(value)"
        else:
            reader = f"std::get<{TYPES[self.type]}>(value)"
        if self.is_optional:
            word = quoted(self.word) if self.word else "{}"
            return (f"    {{{self.constant()}, [](Settings& settings, const RecipeValue& value) {{\n"
                    f"       {field}.reset();\n"
                    f"       if (is_given(value, {word})) {field} = {reader};\n     }}}},\n")
        return (f"    {{{self.constant()}, [](Settings& settings, const RecipeValue& value) {{\n"
                f"       {field} = {reader};\n     }}}},\n")

    def words(self):
        return f"words_of_{self.enum.split('::')[-1]}_in_{self.path.replace('.', '_')}"

    def table_of_words(self):
        pairs = ", ".join(f"{{{quoted(word)}, {self.enum}::{name}}}"
                          for word, name in zip(self.choices, self.enumerators, strict=True))
        return f"constexpr Word<{self.enum}> {self.words()}[] = {{{pairs}}};\n"


def read(path):
    keys, sections = [], tomllib.loads(path.read_text(encoding="utf-8"))
    for name, entry in sections.items():
        if "type" in entry and not isinstance(entry["type"], dict):
            keys.append(Key("", name, entry))
        else:
            keys += [Key(name, inner, found) for inner, found in entry.items()]
    return keys


def by_section(keys):
    sections = {}
    for key in keys:
        sections.setdefault(key.section, []).append(key)
    return sections.items()


def includes(enums):
    return "".join(f'#include "{header}"\n' for header in sorted({HEADERS[enum] for enum in enums if enum in HEADERS}))


def header(keys):
    own = [key for key in keys if key.enum and key.enum not in HEADERS]
    text = NOTICE + """#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/recipe/recipe_key.h"
""" + includes(key.enum for key in keys if key.initializes()) + """#include "weft/nn/factory.h"
#include "weft/nn/options.h"
#include "weft/train/recipe/value.h"

namespace weft {
"""
    for enum in sorted({key.enum for key in keys if key.enum in HEADERS and not key.initializes()}):
        *outer, name = enum.split("::")
        text += "".join(f"namespace {space} {{ " for space in outer) + f"enum class {name} : uint8_t;" + " }" * len(outer) + "\n"
    text += """}  // namespace weft
namespace weft::train {

"""
    for key in own:
        text += f"enum class {key.enum} : uint8_t {{ {', '.join(key.enumerators)} }};\n"
        text += f"std::string_view name({key.enum} value);  // as {key.path} says it\n"
    text += "\n// Names the keys of recipes, for messages and for flags.\nnamespace keys {\n"
    for section, inside in by_section(keys):
        text += f"namespace {section} {{\n" if section else ""
        text += "".join(f"inline constexpr std::string_view {key.name} = {quoted(key.path)};\n" for key in inside)
        text += f"}}  // namespace {section}\n" if section else ""
    text += "}  // namespace keys\n\n// Settings are the values of a recipe's keys. Keys of registry entries are in the recipe alone.\n"
    text += "struct Settings {\n"
    for section, inside in by_section(keys):
        text += f"  struct {section.capitalize()} {{\n" if section else ""
        text += "".join(key.field("    " if section else "  ") for key in inside)
        text += f"  }} {section};\n" if section else ""
    text += """};

std::span<const RecipeKey> table_of_keys();
// Gives the field of a key the value that a recipe has read; keys of registry entries have none.
void assign(Settings& settings, std::string_view path, const RecipeValue& value);

}  // namespace weft::train
"""
    return text


def source(keys):
    own = [key for key in keys if key.enum and key.enum not in HEADERS]
    text = NOTICE + """#include "weft/train/recipe/settings.h"

#include <algorithm>

#include "weft/base/numbers/quantity.h"
""" + includes(key.enum for key in keys) + """
namespace weft::train {
namespace {
constexpr RecipeKey table[] = {
""" + "".join(key.row() for key in keys) + """};

template <class Enum>
struct Word {
  std::string_view word;
  Enum value;
};
"""
    text += "".join(key.table_of_words() for key in keys if key.enum)
    text += """
template <class Enum>
Enum value_of(std::string_view word, std::span<const Word<Enum>> words) {
  return std::ranges::find(words, word, &Word<Enum>::word)->value;
}
template <class Enum>
Enum value_of(const RecipeValue& value, std::span<const Word<Enum>> words) {
  return value_of(std::string_view(std::get<std::string>(value)), words);
}
template <class Enum>
std::vector<Enum> list_of(const RecipeValue& value, std::span<const Word<Enum>> words) {
  std::vector<Enum> all;
  for (const std::string& word : std::get<std::vector<std::string>>(value))
    all.push_back(value_of(std::string_view(word), words));
  return all;
}
int64_t bytes_of(const RecipeValue& value) { return *parse_bytes(std::get<std::string>(value)); }

bool is_given(const RecipeValue& value, std::string_view absent) {
  const auto* word = std::get_if<std::string>(&value);
  return !std::holds_alternative<std::monostate>(value) && (word == nullptr || *word != absent);
}

struct Assignment {
  std::string_view path;
  void (*assign)(Settings&, const RecipeValue&);
};
constexpr Assignment assignments[] = {
""" + "".join(key.assignment() for key in keys) + """};
}  // namespace

"""
    for key in own:
        text += f"""std::string_view name({key.enum} value) {{
  return std::ranges::find({key.words()}, value, &Word<{key.enum}>::value)->word;
}}
"""
    text += """
std::span<const RecipeKey> table_of_keys() { return table; }

void assign(Settings& settings, std::string_view path, const RecipeValue& value) {
  const auto* found = std::ranges::find(assignments, path, &Assignment::path);
  if (found != std::end(assignments)) found->assign(settings, value);
}
}  // namespace weft::train
"""
    return text


def main(keys_toml, folder):
    keys, folder = read(pathlib.Path(keys_toml)), pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (("settings.h", header(keys)), ("settings.cpp", source(keys))):
        file = folder / name
        if not file.exists() or file.read_text(encoding="utf-8") != text:  # else all compile anew
            file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
