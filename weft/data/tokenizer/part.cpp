#include "weft/data/tokenizer/part.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <simdjson.h>

#include "weft/base/error.h"
#include "weft/base/text/utf8.h"
#include "weft/io/files.h"
#include "weft/io/json.h"

namespace weft::data::tokenizer {

using simdjson::dom::element;

std::string shown(const element& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return fmt::format("a list of {}", simdjson::dom::array(value).size());
  return io::printable(simdjson::minify(value));
}

void check_growth(size_t bytes, size_t from) {
  if (bytes > (size_t{1} << 20) + 256 * from)
    throw Error(ErrorKind::data, "[tokenizer] the file's replacements make {} bytes of {}.", bytes,
                from);
}

Part Part::child(const element& value, std::string place) const {
  Part part;
  part.value_ = std::make_shared<const element>(value);
  part.file_ = file_;
  part.file_bytes_ = file_bytes_;
  part.place_ = std::move(place);
  part.depth_ = depth_ + 1;
  return part;
}

bool Part::is_object() const { return value_->is_object(); }
bool Part::is_list() const { return value_->is_array(); }

int64_t Part::id_limit() const {
  return std::min<int64_t>(std::max<int64_t>(static_cast<int64_t>(file_bytes_), 1 << 20),
                           INT32_MAX);
}

Part Part::at(std::string_view key) const {
  if (!is_object()) must("must be an object");
  element found;
  if (value_->at_key(key).get(found) != simdjson::SUCCESS) fail(fmt::format("has no '{}'", key));
  return child(found, place_.empty() ? std::string(key) : fmt::format("{}.{}", place_, key));
}

std::optional<Part> Part::find(std::string_view key) const {
  if (!is_object()) must("must be an object");
  element found;
  if (value_->at_key(key).get(found) != simdjson::SUCCESS || found.is_null()) return std::nullopt;
  return at(key);
}

void Part::for_each(const std::function<void(const Part&)>& use) const {
  if (!is_list()) must("must be a list");
  size_t i = 0;
  for (const element item : simdjson::dom::array(*value_))
    use(child(item, fmt::format("{}[{}]", place_, i++)));
}

std::string_view Part::text() const {
  if (!value_->is_string()) must("must be text");
  return *value_;
}

bool Part::truth() const {
  if (!value_->is_bool()) must("must be true or false");
  return *value_;
}

int64_t Part::integer(int64_t least, int64_t most) const {
  int64_t got = 0;
  const bool fits = value_->get(got) == simdjson::SUCCESS;
  if (!fits || got < least || got > most)
    must(most == INT64_MAX ? fmt::format("must be a whole number of at least {}", least)
                           : fmt::format("must be a whole number from {} to {}", least, most));
  return got;
}

double Part::number() const {
  double got = 0;
  if (value_->get(got) != simdjson::SUCCESS) must("must be a number");
  return got;
}

int32_t Part::id() const { return static_cast<int32_t>(integer(0, id_limit() - 1)); }

char32_t Part::character() const {
  const std::string_view character = text();
  size_t end = 0;
  const auto code = next_utf8(character, end);
  if (!code || end != character.size()) must("must be one character");
  return *code;
}

std::string Part::text_or(std::string_view key, std::string_view otherwise) const {
  const auto part = find(key);
  return std::string(part ? part->text() : otherwise);
}
bool Part::truth_or(std::string_view key, bool otherwise) const {
  const auto part = find(key);
  return part ? part->truth() : otherwise;
}
int64_t Part::integer_or(std::string_view key, int64_t otherwise, int64_t least,
                         int64_t most) const {
  const auto part = find(key);
  return part ? part->integer(least, most) : otherwise;
}

void Part::must(std::string_view rule) const {
  fail(fmt::format("{}. Got {}", rule, shown(*value_)));
}

void Part::fail(std::string_view text) const {
  throw Error(ErrorKind::data, "[tokenizer] {}: {}{}{}.", *file_,
              place_.empty() ? "the file" : io::printable(place_), text.starts_with('[') ? "" : " ",
              text);
}

void Part::unknown(std::string_view key, std::string_view name,
                   std::initializer_list<std::string_view> known) const {
  std::string list;
  for (std::string_view one : known) list += fmt::format("{}{}", list.empty() ? "" : ", ", one);
  const std::string before = place_.empty() ? std::string() : place_ + ".";
  throw Error(ErrorKind::data, "[tokenizer] {}: {}{} '{}' is not known. Known: {}.", *file_,
              io::printable(before), key, io::printable(name), list);
}

void Part::check_depth() const {
  if (depth_ > 2 * most_nested_parts)  // each level is a key and an index
    fail(fmt::format("is nested deeper than {} levels", most_nested_parts));
}

Document::Document(std::string_view json, std::string name)
    : name_(std::move(name)), parser_(std::make_unique<simdjson::dom::parser>()) {
  element root;
  auto error = parser_->allocate(json.size(), io::deepest_json + 1);
  if (error == simdjson::SUCCESS) error = parser_->parse(json).get(root);
  if (error != simdjson::SUCCESS) {
    try {
      io::parse_json(json);  // which names the place of a mistake
    } catch (const io::JsonError& mistake) {
      throw Error(ErrorKind::data, "[tokenizer] {}: {}.", name_, mistake.what());
    }
    throw Error(ErrorKind::data, "[tokenizer] {}: not JSON that weft reads: {}", name_,
                simdjson::error_message(error));
  }
  root_.value_ = std::make_shared<const element>(root);
  root_.file_ = &name_;
  root_.file_bytes_ = json.size();
}

Document::~Document() = default;

}  // namespace weft::data::tokenizer
