// A Part is one value of a tokenizer's file with its place in the file, so that an error names
// both:
// "[tokenizer] net/tokenizer.json: model.merges[3] must be two tokens. Got \"a\".".
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

// NOLINTBEGIN(readability-identifier-naming): simdjson names its classes so
namespace simdjson::dom {
class element;
class parser;
}  // namespace simdjson::dom
// NOLINTEND(readability-identifier-naming)

namespace weft::data::tokenizer {

// The deepest nesting of a Sequence of normalizers, pre-tokenizers or decoders.
inline constexpr int most_nested_parts = 32;

// Returns a value as an error shows it. Of lists and objects it says the kind alone, as they may be
// as long as the file.
std::string shown(const simdjson::dom::element& value);
// Throws Error(data) if a Sequence made `bytes` bytes of a text of `from` bytes, more than a real
// tokenizer makes: each replacement of a Sequence can double the text.
void check_growth(size_t bytes, size_t from);

class Part {
 public:
  // Lists and objects of thousands of values are read from here, without a Part for each.
  const simdjson::dom::element& value() const { return *value_; }
  bool is_object() const;
  bool is_list() const;
  const std::string& file() const { return *file_; }
  // Returns the bound of ids: the bytes of the file, but at least a million, so that one number in
  // a file cannot cause a table of four billion rows.
  int64_t id_limit() const;

  // Return the value under a key of an object. at() throws if it is missing; find() returns
  // nullopt where it is missing or null.
  Part at(std::string_view key) const;
  std::optional<Part> find(std::string_view key) const;
  // Calls `use` with each entry of a list; throws if this is no list.
  void for_each(const std::function<void(const Part&)>& use) const;

  // Return this value. They throw if it is of another kind.
  std::string_view text() const;
  bool truth() const;
  int64_t integer(int64_t least, int64_t most) const;
  double number() const;
  int32_t id() const;
  char32_t character() const;

  // Return the value under a key, or `otherwise` where it is missing or null.
  std::string text_or(std::string_view key, std::string_view otherwise) const;
  bool truth_or(std::string_view key, bool otherwise) const;
  int64_t integer_or(std::string_view key, int64_t otherwise, int64_t least, int64_t most) const;

  // Throws Error(data): "[tokenizer] FILE: PLACE RULE. Got VALUE.".
  [[noreturn]] void must(std::string_view rule) const;
  // Throws Error(data): "[tokenizer] FILE: PLACE TEXT.". A text may begin with an index: "[3] ...".
  [[noreturn]] void fail(std::string_view text) const;
  // Throws Error(data) for a `type` (or another name under `key`) that weft does not know.
  [[noreturn]] void unknown(std::string_view key, std::string_view name,
                            std::initializer_list<std::string_view> known) const;
  // Throws if this part is nested deeper than weft reads.
  void check_depth() const;

 private:
  friend class Document;
  Part() = default;
  Part child(const simdjson::dom::element& value, std::string place) const;

  std::shared_ptr<const simdjson::dom::element> value_;
  const std::string* file_ = nullptr;
  size_t file_bytes_ = 0;  // bytes of the file, which bound ids
  std::string place_;
  int depth_ = 0;
};

// A Document is a parsed file, which must outlive its parts. While it is read it takes about
// fifteen times the bytes of the file.
class Document {
 public:
  // Throws Error(data) with the line and the column of `json`, the contents of the file `name`.
  Document(std::string_view json, std::string name);
  ~Document();
  Document(const Document&) = delete;
  Document& operator=(const Document&) = delete;

  const Part& root() const { return root_; }

 private:
  std::string name_;
  std::unique_ptr<simdjson::dom::parser> parser_;
  Part root_;
};

}  // namespace weft::data::tokenizer
