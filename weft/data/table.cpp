#include "weft/data/table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/base/numbers/hash.h"
#include "weft/base/text/suggest.h"
#include "weft/base/text/utf8.h"
#include "weft/io/csv.h"
#include "weft/io/files.h"
#include "weft/io/json.h"

namespace weft::data {
namespace {
using io::printable;

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blanks = " \t";
  const size_t first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

// Returns a decimal number; nullopt for other text, and for a number beyond float64.
std::optional<double> number_of(std::string_view text) {
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool fits_float32(double value) {
  return std::fabs(value) <= static_cast<double>(std::numeric_limits<float>::max());
}

class Parser {
 public:
  // `mapped`: the text is a memory-mapped file. Its pages are released once they are read, so that
  // the whole file is never in memory beside its numbers.
  Parser(std::string_view text, const std::string& name, const TableOptions& options, bool mapped)
      : text_(text), options_(options), mapped_(mapped), reader_(text, name, options.separator) {
    table_.name = name;
  }

  Table parse() {
    if (!reader_.next(fields_))
      throw Error(ErrorKind::data, "{} is empty. Its first line must name the columns.",
                  table_.name);
    read_header();
    reserve();
    size_t released = 0;
    while (reader_.next(fields_)) {
      read_row();
      if (reader_.offset() - released >= chunk) release(std::exchange(released, reader_.offset()));
    }
    if (table_.rows() == 0)
      throw Error(ErrorKind::data, "{} has no rows below its header.", table_.name);
    return std::move(table_);
  }

 private:
  static constexpr size_t chunk = size_t{16} << 20;  // bytes

  void release(size_t from) const {
    const std::string_view part = text_.substr(from, chunk);
    if (mapped_) io::release_pages(std::as_bytes(std::span(part)));
  }

  // Vectors that grow would take twice the memory for a moment. A row is at least a line.
  void reserve() {
    int64_t lines = 1;
    for (size_t from = 0; from < text_.size(); from += chunk) {
      lines += std::ranges::count(text_.substr(from, chunk), '\n');
      release(from);
    }
    const auto rows = static_cast<size_t>(lines - reader_.line());
    table_.inputs.reserve(rows * feature_columns_.size());
    if (options_.classes)
      table_.labels.reserve(rows);
    else
      table_.numbers.reserve(rows * target_columns_.size());
    table_.lines.reserve(rows);
  }

  void read_header() {
    for (const std::string& field : fields_) names_.push_back(text_of(trimmed(field)));
    const auto column_of = [&](const std::string& name) {
      const auto found = std::ranges::find(names_, name);
      if (found != names_.end()) return static_cast<size_t>(found - names_.begin());
      throw Error(ErrorKind::data, "{} has no column '{}'.{}", table_.name, printable(name),
                  did_you_mean(name, names_));
    };
    for (const std::string& name : options_.targets) target_columns_.push_back(column_of(name));
    for (const std::string& name : options_.features) feature_columns_.push_back(column_of(name));
    if (options_.features.empty())
      for (size_t i = 0; i < names_.size(); ++i)
        if (std::ranges::find(target_columns_, i) == target_columns_.end())
          feature_columns_.push_back(i);
    if (feature_columns_.empty())
      throw Error(ErrorKind::data, "{} has no column besides the target.", table_.name);
    check_names();
    for (const size_t i : feature_columns_) table_.features.push_back(names_[i]);
    table_.targets = options_.targets;
  }

  // Requires distinct names, and a name of each input column: columns are identified by name alone.
  void check_names() const {
    std::unordered_map<std::string_view, size_t> seen;
    for (size_t i = 0; i < names_.size(); ++i)
      if (const auto [first, is_new] = seen.emplace(names_[i], i); !is_new && !names_[i].empty())
        throw Error(ErrorKind::data, "{}: columns {} and {} are both named '{}'.", table_.name,
                    first->second + 1, i + 1, printable(names_[i]));
    for (const size_t i : feature_columns_)
      if (names_[i].empty())
        throw Error(ErrorKind::data,
                    "{}: column {} has no name. Hint: data.features lists the columns that are "
                    "inputs.",
                    table_.name, i + 1);
  }

  void read_row() {
    if (fields_.size() != names_.size())
      throw Error(ErrorKind::data, "{}: line {} has {} fields. The header has {}.", table_.name,
                  reader_.line(), fields_.size(), names_.size());
    for (const size_t i : feature_columns_)
      table_.inputs.push_back(number(i, " Hint: data.features lists the columns that are inputs."));
    for (const size_t i : target_columns_)
      if (options_.classes)
        table_.labels.push_back(label(i));
      else
        table_.numbers.push_back(number(i, " Hint: task: classification, if it is a class."));
    table_.lines.push_back(reader_.line());
  }

  // Returns a name as JSON can hold it.
  std::string text_of(std::string_view text) const {
    for (size_t at = 0; at < text.size();)
      if (!next_utf8(text, at))
        throw Error(ErrorKind::data, "{}: line {}: '{}' is not UTF-8.", table_.name, reader_.line(),
                    printable(text));
    return std::string(text);
  }

  std::string_view value_of(size_t column) const {
    const std::string_view value = trimmed(fields_[column]);
    if (value.empty()) refuse(column, "is empty. Rows with missing values must be left out.");
    return value;
  }

  double number(size_t column, std::string_view hint) const {
    const std::string_view text = value_of(column);
    const std::optional<double> value = number_of(text);
    if (!value) refuse(column, fmt::format("must be a number. Got '{}'.{}", printable(text), hint));
    if (!fits_float32(*value))
      refuse(column,
             fmt::format("must be a finite number of float32's range. Got '{}'.", printable(text)));
    return *value;
  }

  int32_t label(size_t column) {
    const std::string name = text_of(value_of(column));
    const auto [found, is_new] = labels_.emplace(name, static_cast<int32_t>(table_.classes.size()));
    if (is_new) table_.classes.push_back(name);
    return found->second;
  }

  [[noreturn]] void refuse(size_t column, const std::string& what) const {
    throw Error(ErrorKind::data, "{}: line {}: column '{}' {}", table_.name, reader_.line(),
                printable(names_[column]), what);
  }

  std::string_view text_;
  const TableOptions& options_;
  bool mapped_;
  io::CsvReader reader_;
  Table table_;
  std::vector<std::string> fields_, names_;
  std::vector<size_t> feature_columns_, target_columns_;
  std::unordered_map<std::string, int32_t> labels_;
};

// Returns the normalization of column `i` of numbers [rows, width].
Column column_of(const std::string& name, std::span<const double> numbers, size_t i, size_t width,
                 std::span<const int64_t> rows) {
  const auto at = [&](int64_t row) { return numbers[static_cast<size_t>(row) * width + i]; };
  const auto count = static_cast<double>(rows.size());
  double sum = 0, squares = 0;
  for (const int64_t row : rows) sum += at(row);
  const double mean = sum / count;
  for (const int64_t row : rows) squares += (at(row) - mean) * (at(row) - mean);
  const bool is_constant =
      std::ranges::all_of(rows, [&](int64_t row) { return at(row) == at(rows.front()); });
  if (is_constant) return {name, at(rows.front()), 1};
  return {name, mean, std::sqrt(squares / count)};
}

// Returns classes in the order of their labels.
std::vector<std::string> sorted(std::vector<std::string> classes) {
  const bool are_numbers =
      std::ranges::all_of(classes, [](const std::string& name) { return !!number_of(name); });
  std::ranges::sort(classes, {}, [&](const std::string& name) {
    return std::pair(are_numbers ? *number_of(name) : 0, name);
  });
  return classes;
}

class TableSource : public Source {
 public:
  TableSource(std::shared_ptr<const Table> table, std::vector<int64_t> rows,
              const TableColumns& columns)
      : table_(std::move(table)), rows_(std::move(rows)), columns_(columns) {
    for (const std::string& name : table_->classes) {
      const auto found = std::ranges::find(columns.classes, name);
      label_of_.push_back(found == columns.classes.end() ? -1 : found - columns.classes.begin());
    }
    for (const int64_t row : rows_) check(row);
  }

  int64_t size() const override { return std::ssize(rows_); }
  Type input_type() const override { return {DType::f32, {std::ssize(columns_.features)}}; }
  Shape label_shape() const override {
    return table_->numbers.empty() ? Shape{} : Shape{std::ssize(columns_.targets)};
  }
  DType label_dtype() const override { return table_->numbers.empty() ? DType::i64 : DType::f32; }
  void write(const SampleKey& key, std::byte* input, int64_t* labels) const override {
    const int64_t row = row_of(key);
    normalize(table_->inputs, columns_.features, row, reinterpret_cast<float*>(input));
    *labels = label_of(row);
  }
  void write_targets(const SampleKey& key, std::byte* input, float* targets) const override {
    const int64_t row = row_of(key);
    normalize(table_->inputs, columns_.features, row, reinterpret_cast<float*>(input));
    normalize(table_->numbers, columns_.targets, row, targets);
  }
  std::vector<double> target_variations() const override {
    const size_t width = columns_.targets.size();
    std::vector<double> squares;
    for (size_t i = 0; i < width; ++i) {
      Variation variation;
      for (const int64_t row : rows_)
        variation.add(normalized(row_of(table_->numbers, width, row)[i], columns_.targets[i]));
      squares.push_back(variation.squares());
    }
    return squares;
  }
  size_t bytes() const override {
    const size_t targets = table_->numbers.empty() ? 0 : columns_.targets.size();
    const size_t numbers = (columns_.features.size() + targets) * sizeof(double);
    const size_t label = table_->numbers.empty() ? sizeof(int32_t) : 0;
    return rows_.size() * (numbers + label + 2 * sizeof(int64_t));
  }
  uint64_t fingerprint() const override {
    uint64_t hash = rows_.size();
    for (const int64_t row : rows_) {
      const std::span inputs = row_of(table_->inputs, columns_.features.size(), row);
      hash = hash_combine(hash, hash_bytes(inputs.data(), inputs.size_bytes()));
      if (table_->numbers.empty()) {
        hash = hash_combine(hash, hash_text(class_of(row)));
      } else {
        const std::span numbers = row_of(table_->numbers, columns_.targets.size(), row);
        hash = hash_combine(hash, hash_bytes(numbers.data(), numbers.size_bytes()));
      }
    }
    return hash;
  }

 private:
  static double normalized(double x, const Column& column) {
    return (x - column.mean) / column.std;
  }
  static std::span<const double> row_of(const std::vector<double>& numbers, size_t width,
                                        int64_t row) {
    return std::span(numbers).subspan(static_cast<size_t>(row) * width, width);
  }
  static void normalize(const std::vector<double>& numbers, const std::vector<Column>& columns,
                        int64_t row, float* out) {
    const std::span from = row_of(numbers, columns.size(), row);
    for (size_t i = 0; i < columns.size(); ++i)
      out[i] = static_cast<float>(normalized(from[i], columns[i]));
  }
  int64_t row_of(const SampleKey& key) const { return rows_[static_cast<size_t>(key.index)]; }
  int64_t line_of(int64_t row) const { return table_->lines[static_cast<size_t>(row)]; }
  size_t id_of(int64_t row) const {
    return static_cast<size_t>(table_->labels[static_cast<size_t>(row)]);
  }
  const std::string& class_of(int64_t row) const { return table_->classes[id_of(row)]; }
  int64_t label_of(int64_t row) const { return label_of_[id_of(row)]; }

  void check(int64_t row) const {
    check(table_->inputs, columns_.features, row);
    if (!table_->numbers.empty())
      check(table_->numbers, columns_.targets, row);
    else if (label_of(row) < 0)
      throw Error(ErrorKind::data,
                  "{}: line {}: column '{}' has the class '{}', which no training row has.",
                  table_->name, line_of(row), printable(columns_.targets[0].name),
                  printable(class_of(row)));
  }
  void check(const std::vector<double>& numbers, const std::vector<Column>& columns,
             int64_t row) const {
    const std::span from = row_of(numbers, columns.size(), row);
    for (size_t i = 0; i < columns.size(); ++i)
      if (!fits_float32(normalized(from[i], columns[i])))
        throw Error(ErrorKind::data,
                    "{}: line {}: column '{}' exceeds float32 once it is normalized by the mean {} "
                    "and the standard deviation {} of the training rows.",
                    table_->name, line_of(row), printable(columns[i].name), columns[i].mean,
                    columns[i].std);
  }

  std::shared_ptr<const Table> table_;
  std::vector<int64_t> rows_;
  TableColumns columns_;
  std::vector<int64_t> label_of_;  // label of each of the table's classes; -1: no label
};

using nlohmann::json;

json json_of(const std::vector<Column>& columns) {
  json list = json::array();
  for (const Column& column : columns)
    list.push_back({{"name", column.name}, {"mean", column.mean}, {"std", column.std}});
  return list;
}

const json& list_at(const json& object, const char* key) {
  const json& list = io::value_at(object, key);
  if (!list.is_array()) throw io::JsonError(fmt::format("{} must be a list", key));
  return list;
}

std::vector<Column> columns_at(const json& object, const char* key) {
  std::vector<Column> columns;
  for (const json& entry : list_at(object, key)) {
    columns.push_back(
        {io::text_at(entry, "name"), io::number_at(entry, "mean"), io::number_at(entry, "std")});
    if (!(columns.back().std > 0) || !std::isfinite(columns.back().std))
      throw io::JsonError("std must be a finite number above 0");
  }
  if (columns.empty()) throw io::JsonError(fmt::format("{} must not be empty", key));
  return columns;
}
}  // namespace

Table parse_table(std::string_view text, const std::string& name, const TableOptions& options) {
  return Parser(text, name, options, false).parse();
}

Table read_table(const std::string& path, const TableOptions& options) {
  const std::shared_ptr<Buffer> file = io::map_file(path);
  return Parser({reinterpret_cast<const char*>(file->data), file->bytes}, path, options, true)
      .parse();
}

std::string TableColumns::to_json() const {
  return io::json_text(
      json{{"features", json_of(features)}, {"targets", json_of(targets)}, {"classes", classes}},
      2);
}

TableColumns TableColumns::from_json(std::string_view text, const std::string& name) {
  try {
    const json object = io::parse_json(text);
    TableColumns columns{columns_at(object, "features"), columns_at(object, "targets")};
    for (const json& entry : list_at(object, "classes"))
      columns.classes.push_back(io::text_at({{"class", entry}}, "class"));
    return columns;
  } catch (const io::JsonError& error) {
    throw Error(ErrorKind::data, "{}: {}.", name, error.what());
  }
}

TableColumns columns_of(const Table& table, std::span<const int64_t> rows) {
  TableColumns columns{.classes = sorted(table.classes)};
  for (size_t i = 0; i < table.features.size(); ++i)
    columns.features.push_back(
        column_of(table.features[i], table.inputs, i, table.features.size(), rows));
  for (size_t i = 0; i < table.targets.size(); ++i)
    columns.targets.push_back(table.numbers.empty() ? Column{table.targets[i]}
                                                    : column_of(table.targets[i], table.numbers, i,
                                                                table.targets.size(), rows));
  return columns;
}

std::shared_ptr<const Source> table_source(std::shared_ptr<const Table> table,
                                           std::vector<int64_t> rows, const TableColumns& columns) {
  return std::make_shared<TableSource>(std::move(table), std::move(rows), columns);
}

}  // namespace weft::data
