#include "weft/train/recipe/yaml_text.h"

#include <algorithm>
#include <set>
#include <sstream>

#include <fmt/format.h>
#include <yaml-cpp/anchor.h>
#include <yaml-cpp/eventhandler.h>

#include "weft/base/error.h"
#include "weft/base/text/utf8.h"

namespace weft::train {
namespace {
constexpr int max_depth = 32;

// Refuses the control characters that YAML 1.2.2, 5.1 does not allow: it has tabs and line breaks
// alone, and DEL within quotes. yaml-cpp would read on and replace invalid characters.
void check_characters(std::string_view yaml, const std::string& name, std::string_view what) {
  auto is_printable = [](char32_t c) {
    return c == U'\t' || c == U'\n' || c == U'\r' || (c >= 0x20 && c <= 0x7f) || c == 0x85 ||
           c >= 0xa0;
  };
  size_t line = 1;
  for (size_t at = 0; at < yaml.size();) {
    const size_t begin = at;
    const auto code = next_utf8(yaml, at);
    if (!code || !is_printable(*code))
      throw Error(ErrorKind::usage,
                  "{} is UTF-8 text without control characters. Got the byte 0x{:02x}.",
                  name.starts_with("--") ? name : fmt::format("{}:{}: {}", name, line, what),
                  static_cast<unsigned char>(yaml[begin]));
    if (yaml[begin] == '\n') ++line;
  }
}

// Checks the text before yaml-cpp builds a tree: deep nesting would exhaust its stack, aliases its
// memory.
void check_text(std::string_view yaml, const std::string& name, std::string_view what) {
  if (yaml.size() > max_yaml_bytes)
    throw Error(ErrorKind::usage, "{}: {} has at most {} bytes. Got {}.", name, what,
                max_yaml_bytes, yaml.size());
  check_characters(yaml, name, what);
  int depth = 0;
  bool line_start = true;
  size_t indent = 0, deepest = 0;
  for (char c : yaml) {
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    if (depth > max_depth)
      throw Error(ErrorKind::usage, "{}: {} nests at most {} deep.", name, what, max_depth);
    if (c == '\n') {
      line_start = true;
      indent = 0;
    } else if (line_start && (c == ' ' || c == '-' || c == '?')) {
      deepest = std::max(deepest, ++indent);
    } else {
      line_start = false;
    }
  }
  if (deepest > 8 * max_depth)
    throw Error(ErrorKind::usage, "{}: {} is indented by at most {} columns.", name, what,
                8 * max_depth);
  for (size_t at = yaml.find_first_of("&*"); at != std::string_view::npos;
       at = yaml.find_first_of("&*", at + 1)) {
    bool token =
        at == 0 || std::string_view(" \n[{,:-").find(yaml[at - 1]) != std::string_view::npos;
    const std::string_view line = yaml.substr(yaml.substr(0, at).rfind('\n') + 1);
    const std::string_view before =
        line.substr(0, at - static_cast<size_t>(line.data() - yaml.data()));
    // A comment begins at a line's start or after white space.
    const bool comment = before.starts_with('#') || before.find(" #") != std::string_view::npos ||
                         before.find("\t#") != std::string_view::npos;
    if (token && !comment)
      throw Error(ErrorKind::usage,
                  "{}: {} has no anchors and aliases (& and *). Hint: in quotes they are text.",
                  name, what);
  }
}

// Counts documents without building them: yaml-cpp finds infinitely many in a text that begins with
// a comma.
class Unbuilt : public YAML::EventHandler {
  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t,
                const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}
};
}  // namespace

[[noreturn]] void fail(const RecipeOrigin& origin, const YAML::Node& node, std::string_view path,
                       const std::string& rule) {
  throw Error(ErrorKind::usage, "{}: {} {}", origin.at(node), printable(path), rule);
}

std::string shown(const YAML::Node& node) {
  if (node.IsScalar()) return fmt::format("'{}'", printable(node.Scalar()));
  return node.IsNull() ? "nothing" : node.IsSequence() ? "a list" : "a map";
}

void refuse_duplicates(const RecipeOrigin& origin, const YAML::Node& map,
                       const std::string& prefix) {
  std::set<std::string> seen;
  for (const auto& entry : map)
    if (entry.first.IsScalar() && !seen.insert(entry.first.Scalar()).second)
      fail(origin, entry.first, prefix + entry.first.Scalar(), "is given twice.");
}

YAML::Node parse_yaml(std::string_view yaml, const std::string& name, std::string_view what) {
  check_text(yaml, name, what);
  try {
    const std::string text(yaml);
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    Unbuilt events;
    if (parser.HandleNextDocument(events) && parser.HandleNextDocument(events))
      throw Error(ErrorKind::usage, "{}: {} is one YAML document. Got several.", name, what);
    return YAML::Load(text);
  } catch (const YAML::Exception& error) {
    throw Error(ErrorKind::usage, "{}:{}: not YAML: {}.", name, error.mark.line + 1,
                printable(error.msg));
  }
}

}  // namespace weft::train
