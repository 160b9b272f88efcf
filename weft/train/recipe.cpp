#include "weft/train/recipe.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <yaml-cpp/yaml.h>

#include "weft/base/error.h"
#include "weft/base/quantity.h"
#include "weft/base/suggest.h"
#include "weft/io/files.h"

extern char** environ;

namespace weft::train {
namespace {
using nlohmann::json;
constexpr size_t max_bytes = 1 << 20;
constexpr int max_depth = 32;
constexpr size_t longest_name = 200;  // bytes; folders take 255, partial ones a suffix

// Where a value came from, for messages: "mnist.yaml:12" or "--optimizer.lr".
struct Origin {
  std::string name;
  bool lines = false;  // a file, in which nodes have lines
  std::string at(const YAML::Node& node) const {
    return lines && node.Mark().line >= 0 ? fmt::format("{}:{}", name, node.Mark().line + 1) : name;
  }
};

[[noreturn]] void fail(const Origin& origin, const YAML::Node& node, std::string_view path,
                       const std::string& rule) {
  throw Error(ErrorKind::usage, "{}: {} {}", origin.at(node), path, rule);
}

std::string shown(const YAML::Node& node) {
  if (node.IsScalar()) return fmt::format("'{}'", io::printable(node.Scalar()));
  return node.IsNull() ? "nothing" : node.IsSequence() ? "a list" : "a map";
}

std::optional<double> as_number(const std::string& text) {
  double value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
    return std::nullopt;
  return value;
}
std::optional<bool> as_flag(const std::string& text) {
  if (text == "true" || text == "yes" || text == "on") return true;
  if (text == "false" || text == "no" || text == "off") return false;
  return std::nullopt;
}

// yaml-cpp keeps both of two equal keys. `prefix` stands before them in the message: "optimizer.".
void refuse_duplicates(const Origin& origin, const YAML::Node& map, const std::string& prefix) {
  std::set<std::string> seen;
  for (const auto& entry : map)
    if (entry.first.IsScalar() && !seen.insert(entry.first.Scalar()).second)
      fail(origin, entry.first, io::printable(prefix + entry.first.Scalar()), "is given twice.");
}

// Reads one value of a key's type.
class Reader {
 public:
  Reader(const Origin& origin, const RecipeKey& key) : origin_(origin), key_(key) {}

  Recipe::Value read(const YAML::Node& node) const {
    if (node.IsNull() || (node.IsScalar() && (node.Scalar() == "null" || node.Scalar() == "~"))) {
      if (key_.initial != "null") wrong(node, "must not be null");
      return {};
    }
    switch (key_.type) {
      case KeyType::text:
        return text(node);
      case KeyType::integer:
        return integer(node);
      case KeyType::number:
        return number(node);
      case KeyType::boolean:
        return flag(node);
      case KeyType::numbers:
        return numbers(node);
      case KeyType::texts:
        return texts(node);
      case KeyType::map:
        return options(node, key_.path);
      case KeyType::layers:
        return named<nn::LayerSpec>(node);
      case KeyType::transforms:
        return named<TransformSpec>(node);
    }
    return {};
  }

 private:
  [[noreturn]] void wrong(const YAML::Node& node, const std::string& rule) const {
    fail(origin_, node, key_.path, fmt::format("{}. Got {}.", rule, shown(node)));
  }
  std::string scalar(const YAML::Node& node, std::string_view expected) const {
    if (!node.IsScalar()) wrong(node, fmt::format("must be {}", expected));
    return node.Scalar();
  }

  std::string text(const YAML::Node& node) const {
    std::string value = scalar(node, "a word");
    std::string list = fmt::format(", {}, ", key_.choices);
    if (!key_.choices.empty() && list.find(fmt::format(", {}, ", value)) == std::string::npos)
      wrong(node, fmt::format("must be one of {}", key_.choices));
    if (value.empty()) wrong(node, "must not be empty");
    return value;
  }
  void check_range(const YAML::Node& node, double value) const {
    if (key_.low < key_.high && (value < key_.low || value > key_.high))
      wrong(node, fmt::format("must be in {:g} .. {:g}", key_.low, key_.high));
  }
  int64_t integer(const YAML::Node& node) const {
    auto value = parse_count(scalar(node, "a whole number"));
    if (!value) wrong(node, "must be a whole number");
    check_range(node, static_cast<double>(*value));
    return *value;
  }
  double number(const YAML::Node& node) const {
    auto value = as_number(scalar(node, "a number"));
    if (!value) wrong(node, "must be a number");
    check_range(node, *value);
    return *value;
  }
  bool flag(const YAML::Node& node) const {
    auto value = as_flag(scalar(node, "true or false"));
    if (!value) wrong(node, "must be true or false");
    return *value;
  }
  std::vector<double> numbers(const YAML::Node& node) const {
    if (!node.IsSequence()) wrong(node, "must be a list of numbers");
    std::vector<double> all;
    for (const YAML::Node& entry : node) all.push_back(number(entry));
    return all;
  }
  std::vector<std::string> texts(const YAML::Node& node) const {
    if (!node.IsSequence()) wrong(node, "must be a list of words");
    std::vector<std::string> all;
    for (const YAML::Node& entry : node) all.push_back(text(entry));
    return all;
  }

  nn::Option option(const YAML::Node& node) const {
    if (node.IsSequence()) {
      std::vector<int64_t> all;
      for (const YAML::Node& entry : node) {
        auto value = entry.IsScalar() ? parse_count(entry.Scalar()) : std::nullopt;
        if (!value)
          fail(origin_, entry, key_.path, "lists hold whole numbers. Got " + shown(entry) + ".");
        all.push_back(*value);
      }
      return all;
    }
    std::string value = scalar(node, "a value");
    if (auto integer = parse_count(value)) return *integer;
    if (auto number = as_number(value)) return *number;
    if (auto flag = as_flag(value)) return *flag;
    return value;
  }
  nn::Options options(const YAML::Node& node, std::string_view what) const {
    if (!node.IsMap())
      fail(origin_, node, what, "must be a map of options. Got " + shown(node) + ".");
    refuse_duplicates(origin_, node, fmt::format("{}.", what));
    nn::Options result;
    for (const auto& entry : node) result.set(entry.first.Scalar(), option(entry.second));
    return result;
  }
  // [name, {name: {option: value}}, ...]
  template <class Spec>
  std::vector<Spec> named(const YAML::Node& node) const {
    if (!node.IsSequence()) wrong(node, "must be a list");
    std::vector<Spec> all;
    for (const YAML::Node& entry : node) {
      if (entry.IsScalar()) {
        all.push_back({entry.Scalar()});
        continue;
      }
      if (!entry.IsMap() || entry.size() != 1)
        fail(origin_, entry, key_.path,
             "lists names, or maps of one name to its options. Got " + shown(entry) + ".");
      const auto& only = *entry.begin();
      all.push_back({only.first.Scalar(), only.second.IsNull()
                                              ? nn::Options()
                                              : options(only.second, only.first.Scalar())});
    }
    return all;
  }

  const Origin& origin_;
  const RecipeKey& key_;
};

[[noreturn]] void unknown_key(const Origin& origin, const YAML::Node& node,
                              const std::string& path) {
  // A word alone may stand for a section.
  std::vector<std::string_view> known;
  for (const RecipeKey& key : recipe_keys())
    known.push_back(path.find('.') != std::string::npos ? key.path
                                                        : key.path.substr(0, key.path.find('.')));
  std::string_view similar = nearest(path, known);
  fail(origin, node, io::printable(path),
       similar.empty() ? "is no recipe key. Hint: weft config reference lists them."
                       : fmt::format("is no recipe key. Did you mean {}?", similar));
}

bool is_section(const std::string& name) {
  return std::any_of(recipe_keys().begin(), recipe_keys().end(),
                     [&](const RecipeKey& key) { return key.path.starts_with(name + "."); });
}

// Before yaml-cpp builds a tree: deep nesting would exhaust its stack, aliases its memory.
void check_text(std::string_view yaml, const std::string& name) {
  if (yaml.size() > max_bytes)
    throw Error(ErrorKind::usage, "{}: a recipe has at most {} bytes. Got {}.", name, max_bytes,
                yaml.size());
  int depth = 0;
  bool line_start = true;
  size_t indent = 0, deepest = 0;
  for (char c : yaml) {
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    if (depth > max_depth)
      throw Error(ErrorKind::usage, "{}: a recipe nests at most {} deep.", name, max_depth);
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
    throw Error(ErrorKind::usage, "{}: a recipe is indented by at most {} columns.", name,
                8 * max_depth);
  for (size_t at = yaml.find_first_of("&*"); at != std::string_view::npos;
       at = yaml.find_first_of("&*", at + 1)) {
    bool token =
        at == 0 || std::string_view(" \n[{,:-").find(yaml[at - 1]) != std::string_view::npos;
    bool comment = yaml.substr(0, at).rfind('#') != std::string_view::npos &&
                   yaml.substr(0, at).rfind('#') > yaml.substr(0, at).rfind('\n') + 1;
    if (token && !comment)
      throw Error(ErrorKind::usage, "{}: recipes have no anchors and aliases (& and *).", name);
  }
}

YAML::Node parse_yaml(std::string_view yaml, const std::string& name) {
  check_text(yaml, name);
  try {
    std::vector<YAML::Node> documents = YAML::LoadAll(std::string(yaml));
    if (documents.size() > 1)
      throw Error(ErrorKind::usage, "{}: a recipe is one YAML document. Got {}.", name,
                  documents.size());
    return documents.empty() ? YAML::Node() : documents.front();
  } catch (const YAML::Exception& error) {
    throw Error(ErrorKind::usage, "{}:{}: not YAML: {}.", name, error.mark.line + 1,
                io::printable(error.msg));
  }
}
}  // namespace

Recipe::Recipe() {
  for (const RecipeKey& key : recipe_keys()) {
    Origin origin{"default"};
    values_[std::string(key.path)] = Reader(origin, key).read(YAML::Load(std::string(key.initial)));
  }
}

Recipe Recipe::parse(std::string_view yaml, const std::string& name) {
  Recipe recipe;
  Origin origin{name, true};
  YAML::Node root = parse_yaml(yaml, name);
  if (root.IsNull()) return recipe;
  if (!root.IsMap())
    throw Error(ErrorKind::usage, "{}: a recipe is a map of keys. Got {}.", name, shown(root));
  auto read = [&](const std::string& path, const YAML::Node& node) {
    const RecipeKey* key = find_key(path);
    if (key == nullptr) unknown_key(origin, node, path);
    recipe.values_[path] = Reader(origin, *key).read(node);
  };
  try {
    refuse_duplicates(origin, root, "");
    for (const auto& entry : root) {
      if (!entry.first.IsScalar()) fail(origin, entry.first, "a key", "must be a word.");
      std::string section = entry.first.Scalar();
      if (find_key(section) != nullptr || !is_section(section)) {
        read(section, entry.second);
        continue;
      }
      if (entry.second.IsNull()) continue;
      if (!entry.second.IsMap())
        fail(origin, entry.second, section, "must be a map. Got " + shown(entry.second) + ".");
      refuse_duplicates(origin, entry.second, section + ".");
      for (const auto& inner : entry.second) {
        if (!inner.first.IsScalar())
          fail(origin, inner.first, section, "has a key that is not a word.");
        read(section + "." + inner.first.Scalar(), inner.second);
      }
    }
  } catch (const YAML::Exception& error) {
    throw Error(ErrorKind::usage, "{}:{}: {}.", name, error.mark.line + 1,
                io::printable(error.msg));
  }
  return recipe;
}

Recipe Recipe::load(const std::string& path) {
  return parse(io::read_file(path, max_bytes, ErrorKind::usage), path);
}

void Recipe::set(std::string_view path, const std::string& value, const std::string& origin_name) {
  Origin origin{origin_name};
  YAML::Node node = parse_yaml(value, origin_name);
  const RecipeKey* key = find_key(path);
  if (key == nullptr) unknown_key(origin, node, std::string(path));
  try {
    values_[std::string(path)] = Reader(origin, *key).read(node);
  } catch (const YAML::Exception& error) {
    throw Error(ErrorKind::usage, "{}: {}.", origin_name, io::printable(error.msg));
  }
}

void Recipe::apply_environment() {
  for (char** entry = environ; *entry != nullptr; ++entry) {
    std::string_view text = *entry;
    size_t equals = text.find('=');
    if (!text.starts_with("WEFT__") || equals == std::string_view::npos) continue;
    std::string name(text.substr(0, equals)), path = name.substr(6);
    if (size_t at = path.find("__"); at != std::string::npos) path.replace(at, 2, ".");
    std::transform(path.begin(), path.end(), path.begin(),
                   [](unsigned char c) { return std::tolower(c); });
    set(path, std::string(text.substr(equals + 1)), name);
  }
}

void Recipe::check() const {
  auto usage = [](const std::string& message) {
    throw Error(ErrorKind::usage, "recipe: {}", message);
  };
  if (has("model.name") == has("model.layers"))
    usage("exactly one of model.name and model.layers must be set.");
  if (has("data.dataset") == has("data.format"))
    usage("exactly one of data.dataset and data.format must be set.");
  if (has("data.format") && !has("data.path")) usage("data.format needs data.path.");
  if (has("train.epochs") == has("train.steps"))
    usage("exactly one of train.epochs and train.steps must be set.");
  int64_t batch = integer("train.global_batch_size");
  if (has("train.micro_batch_size") && batch % integer("train.micro_batch_size") != 0)
    usage(fmt::format("train.micro_batch_size must divide train.global_batch_size. Got {} and {}.",
                      integer("train.micro_batch_size"), batch));
  if (numbers("optimizer.betas").size() != 2)
    usage(
        fmt::format("optimizer.betas has two numbers. Got {}.", numbers("optimizer.betas").size()));
  const std::string& scheduler = text("scheduler.name");
  if (scheduler == "wsd" && integer("scheduler.decay_steps") == 0)
    usage("scheduler.decay_steps is required by wsd: the steps of the fall at the end.");
  if (scheduler == "step" && integer("scheduler.step_size") == 0)
    usage("scheduler.step_size is required by step: the steps between two falls.");
  if (integer("scheduler.warmup_steps") > 0 && number("scheduler.warmup_ratio") > 0)
    usage("at most one of scheduler.warmup_steps and scheduler.warmup_ratio can be set.");
  if (number("scheduler.min_lr") > number("optimizer.lr"))
    usage(fmt::format("scheduler.min_lr is at most optimizer.lr. Got {} and {}.",
                      number("scheduler.min_lr"), number("optimizer.lr")));
  const std::string& every = text("eval.every");
  if (every != "epoch" && parse_count(every).value_or(0) < 1)
    usage(
        fmt::format("eval.every must be 'epoch' or a number of steps from 1 up. Got '{}'.", every));
  if (has("train.memory") && parse_bytes(text("train.memory")).value_or(0) < 1)
    usage(fmt::format("train.memory must be a size such as 1.5GiB. Got '{}'.",
                      io::printable(text("train.memory"))));
  if (has("train.rounding") && text("train.precision") != "bf16")
    usage(fmt::format(
        "train.rounding is for train.precision bf16: the parameters of {} are not rounded.",
        text("train.precision")));
  const std::string& name = text("name");
  auto unfit = [](unsigned char c) { return c == '/' || c < 0x20 || c == 0x7f; };
  if (name.size() > longest_name || name.starts_with('.') || std::ranges::any_of(name, unfit))
    usage(
        fmt::format("name is a folder's name: at most {} bytes, no '/', no '.' first, no control "
                    "characters. Got '{}'.",
                    longest_name, io::printable(name)));
}

const Recipe::Value& Recipe::get(std::string_view path) const {
  auto found = values_.find(path);
  WEFT_ASSERT(found != values_.end(), "recipe key {} is not in the table", path);
  return found->second;
}
bool Recipe::has(std::string_view path) const {
  return !std::holds_alternative<std::monostate>(get(path));
}
const std::string& Recipe::text(std::string_view path) const {
  return std::get<std::string>(get(path));
}
int64_t Recipe::integer(std::string_view path) const { return std::get<int64_t>(get(path)); }
double Recipe::number(std::string_view path) const { return std::get<double>(get(path)); }
bool Recipe::flag(std::string_view path) const { return std::get<bool>(get(path)); }
const std::vector<double>& Recipe::numbers(std::string_view path) const {
  return std::get<std::vector<double>>(get(path));
}
const std::vector<std::string>& Recipe::texts(std::string_view path) const {
  return std::get<std::vector<std::string>>(get(path));
}
const nn::Options& Recipe::options(std::string_view path) const {
  return std::get<nn::Options>(get(path));
}
const std::vector<nn::LayerSpec>& Recipe::layers() const {
  return std::get<std::vector<nn::LayerSpec>>(get("model.layers"));
}
const std::vector<TransformSpec>& Recipe::transforms() const {
  return std::get<std::vector<TransformSpec>>(get("data.transforms"));
}

namespace {
// Writes values as YAML that reads back as the same.
struct Writer {
  YAML::Emitter& out;

  void operator()(std::monostate) const { out << YAML::Null; }
  void operator()(bool value) const { out << value; }
  void operator()(int64_t value) const { out << value; }
  void operator()(double value) const { out << fmt::format("{}", value); }
  void operator()(const std::string& value) const { out << value; }
  template <class T>
  void operator()(const std::vector<T>& values) const {
    out << YAML::Flow << YAML::BeginSeq;
    for (const T& value : values) (*this)(value);
    out << YAML::EndSeq;
  }
  void operator()(const nn::Option& option) const { std::visit(*this, option); }
  void operator()(const nn::Options& options) const {
    out << YAML::Flow << YAML::BeginMap;
    for (const auto& [key, value] : options.entries()) {
      out << YAML::Key << key << YAML::Value;
      (*this)(value);
    }
    out << YAML::EndMap;
  }
  void named(const std::string& name, const nn::Options& options) const {
    if (options.entries().empty()) {
      out << name;
      return;
    }
    out << YAML::Flow << YAML::BeginMap << YAML::Key << name << YAML::Value;
    (*this)(options);
    out << YAML::EndMap;
  }
  void operator()(const nn::LayerSpec& layer) const { named(layer.name, layer.options); }
  void operator()(const TransformSpec& transform) const {
    named(transform.name, transform.options);
  }
};

struct JsonWriter {
  json operator()(std::monostate) const { return nullptr; }
  template <class T>
  json operator()(const T& value) const {
    return value;
  }
  template <class T>
  json operator()(const std::vector<T>& values) const {
    json list = json::array();
    for (const T& value : values) list.push_back((*this)(value));
    return list;
  }
  json operator()(const nn::Option& option) const { return std::visit(*this, option); }
  json operator()(const nn::Options& options) const {
    json map = json::object();
    for (const auto& [key, value] : options.entries()) map[key] = (*this)(value);
    return map;
  }
  json named(const std::string& name, const nn::Options& options) const {
    return options.entries().empty() ? json(name) : json{{name, (*this)(options)}};
  }
  json operator()(const nn::LayerSpec& layer) const { return named(layer.name, layer.options); }
  json operator()(const TransformSpec& transform) const {
    return named(transform.name, transform.options);
  }
};
}  // namespace

std::string Recipe::to_json() const {
  json all;
  for (const RecipeKey& key : recipe_keys()) {
    std::string pointer = "/" + std::string(key.path);
    std::replace(pointer.begin(), pointer.end(), '.', '/');
    all[json::json_pointer(pointer)] = std::visit(JsonWriter(), get(key.path));
  }
  return all.dump(2) + "\n";
}

std::string Recipe::to_yaml(std::string_view path) const {
  YAML::Emitter out;
  std::visit(Writer{out}, get(path));
  return out.c_str();
}

std::string Recipe::to_yaml() const {
  YAML::Emitter out;
  out.SetNullFormat(YAML::LowerNull);
  Writer writer{out};
  out << YAML::BeginMap;
  std::string_view section;
  for (const RecipeKey& key : recipe_keys()) {
    size_t dot = key.path.find('.');
    std::string_view in = dot == std::string_view::npos ? "" : key.path.substr(0, dot);
    if (in != section) {
      if (!section.empty()) out << YAML::EndMap;
      if (!in.empty()) out << YAML::Key << std::string(in) << YAML::Value << YAML::BeginMap;
      section = in;
    }
    out << YAML::Key << std::string(key.path.substr(dot == std::string_view::npos ? 0 : dot + 1))
        << YAML::Value;
    std::visit(writer, get(key.path));
  }
  if (!section.empty()) out << YAML::EndMap;
  out << YAML::EndMap;
  return std::string(out.c_str()) + "\n";
}
}  // namespace weft::train
