// Reads tables of numbers, such as CSV files: each row is a sample, some columns are its targets,
// the others its inputs.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/data/loader.h"

namespace weft::data {

struct TableOptions {
  std::vector<std::string> targets;        // names of columns
  std::vector<std::string> features = {};  // names of the inputs' columns; empty: all others
  bool classes = false;                    // the only target is a class, any text; else numbers
  char separator = ',';
};

// A Table holds the rows of a file, not normalized.
struct Table {
  std::string name;  // the file's, for messages
  std::vector<std::string> features, targets;
  std::vector<double> inputs;        // [rows, features]
  std::vector<double> numbers;       // [rows, targets]; empty where the target is a class
  std::vector<int32_t> labels;       // [rows] indices in `classes`; empty for numbers
  std::vector<std::string> classes;  // in the order of their first rows
  std::vector<int64_t> lines;        // [rows] of the file, counted from 1
  int64_t rows() const { return std::ssize(lines); }
};

// Parses CSV text whose first record names the columns; `name` is the file's. Throws Error(data),
// naming the line and the column, for a missing column, a record of another length than the first,
// and a field that is empty or no finite number of float32's range.
Table parse_table(std::string_view text, const std::string& name, const TableOptions& options);
// Does the same for a file, and throws as io::map_file() does.
Table read_table(const std::string& path, const TableOptions& options);

// A Column has the normalization of its numbers: (x - mean) / std.
struct Column {
  std::string name;
  double mean = 0, std = 1;
  friend bool operator==(const Column&, const Column&) = default;
};

// TableColumns say how rows become samples. They are computed from the training rows; a checkpoint
// keeps them, so that other rows are normalized alike.
struct TableColumns {
  std::vector<Column> features, targets;
  std::vector<std::string> classes = {};  // names of the labels 0, 1, ...; empty: numbers

  // JSON is {"features": [{"name": "area", "mean": 81.5, "std": 20.25}], "targets": [..],
  // "classes": ["cat", "dog"]}. Throws Error(data) for anything else; `name` is the file's.
  std::string to_json() const;
  static TableColumns from_json(std::string_view json, const std::string& name);
  friend bool operator==(const TableColumns&, const TableColumns&) = default;
};

// Returns the mean and the population standard deviation of each column over `rows` (1 for a
// constant column, as scikit-learn's StandardScaler), and the classes of all rows: ascending as
// numbers if all are, else as text.
TableColumns columns_of(const Table& table, std::span<const int64_t> rows);

// Returns the samples of `rows`: inputs f32 [features], and either labels [] or targets f32
// [targets], each normalized. Throws Error(data), naming the line, for a class that `columns` lacks
// and a number that exceeds float32 once it is normalized.
std::shared_ptr<const Source> table_source(std::shared_ptr<const Table> table,
                                           std::vector<int64_t> rows, const TableColumns& columns);

}  // namespace weft::data
