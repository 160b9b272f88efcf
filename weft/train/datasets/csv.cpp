// Reads rows of CSV files: some columns are targets, numbers or a class; the others are inputs.
#include <filesystem>
#include <iterator>
#include <numeric>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/data/table.h"
#include "weft/io/files.h"
#include "weft/train/datasets/datasets.h"

namespace weft::train {
namespace {
constexpr const char* columns_file = "columns.json";
constexpr std::string_view target_key = "data.target", features_key = "data.features",
                           separator_key = "data.separator";
constexpr size_t columns_limit = size_t{1} << 30;  // bytes

data::TableOptions table_options(const Recipe& recipe) {
  const std::string& separator = recipe.text(separator_key);
  if (separator.size() != 1 || separator.find_first_of("\"\r\n") == 0)
    recipe.refuse(separator_key,
                  fmt::format("data.separator must be one character, and no quote or line end. Got "
                              "'{}'.",
                              io::printable(separator)));
  data::TableOptions options{.targets = recipe.texts(target_key),
                             .features = recipe.texts(features_key),
                             .classes = recipe->task == Task::classification,
                             .separator = separator[0]};
  if (options.targets.empty())
    recipe.refuse(recipe.where(target_key).empty() ? keys::data::format : target_key,
                  "data.format csv needs data.target, the name of the column to predict.");
  if (options.classes && options.targets.size() > 1)
    recipe.refuse(target_key,
                  fmt::format("data.target is one column with task classification. Got {}.",
                              options.targets.size()));
  std::set<std::string> seen;
  for (const std::string_view key : {target_key, features_key})
    for (const std::string& column : recipe.texts(key))
      if (!seen.insert(column).second)
        recipe.refuse(
            key, fmt::format("{} names '{}', which is named before.", key, io::printable(column)));
  return options;
}

std::vector<std::string> names_of(const std::vector<data::Column>& columns) {
  std::vector<std::string> names;
  names.reserve(columns.size());
  for (const data::Column& column : columns) names.push_back(column.name);
  return names;
}

// Returns the columns of an earlier part of the run, whose normalization and classes hold on.
data::TableColumns columns_of_checkpoint(const std::string& checkpoint, const Recipe& recipe,
                                         const data::TableOptions& options) {
  const std::string path = (std::filesystem::path(checkpoint) / columns_file).string();
  data::TableColumns columns = [&] {
    const std::string text = io::read_file(path, columns_limit, ErrorKind::checkpoint);
    try {
      return data::TableColumns::from_json(text, path);
    } catch (const Error& error) {  // report the checkpoint, not the data
      throw Error(ErrorKind::checkpoint, error.what());
    }
  }();
  const auto refuse = [&](std::string_view key) {
    recipe.refuse(key, fmt::format("{} differs from that of {}.", key, checkpoint));
  };
  if (options.targets != names_of(columns.targets)) refuse(target_key);
  if (!options.features.empty() && options.features != names_of(columns.features))
    refuse(features_key);
  if (options.classes == columns.classes.empty()) refuse(keys::task);
  return columns;
}

std::vector<int64_t> all_rows(const data::Table& table) {
  std::vector<int64_t> rows(static_cast<size_t>(table.rows()));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

struct Files {
  std::string train, validation;  // paths; `validation` may be ""
};
Files files_of(const Recipe& recipe) {
  Files files{.train = find_data(*recipe->data.path)};
  if (io::is_folder(files.train)) {
    const std::filesystem::path folder = files.train;
    files.train = (folder / "train.csv").string();
    const std::string beside = (folder / "validation.csv").string();
    if (io::exists(beside)) files.validation = beside;
  }
  if (recipe->data.val_path) files.validation = find_data(*recipe->data.val_path);
  return files;
}

TaskData task_of(const data::TableColumns& columns) {
  const bool classes = !columns.classes.empty();
  TaskData parts{.task = classes ? Task::classification : Task::regression,
                 .shape = {InputKind::features,
                           {std::ssize(columns.features)},
                           classes ? std::ssize(columns.classes) : std::ssize(columns.targets)}};
  if (!classes)
    for (const data::Column& target : columns.targets) parts.target_units.push_back(target.std);
  parts.files.push_back({columns_file, columns.to_json() + "\n"});
  return parts;
}

TaskData read_csv(const Recipe& recipe, const DataOptions& options) {
  data::TableOptions how = table_options(recipe);
  std::optional<data::TableColumns> columns;
  if (!options.checkpoint.empty()) {
    columns = columns_of_checkpoint(options.checkpoint, recipe, how);
    how.features = names_of(columns->features);
    if (!options.with_data) return task_of(*columns);
  }
  const Files files = files_of(recipe);
  const bool evaluated = holds_out(recipe, !files.validation.empty());
  const auto table = std::make_shared<const data::Table>(data::read_table(files.train, how));
  std::vector<int64_t> rows = all_rows(*table), others;
  if (evaluated && files.validation.empty()) others = held_out(recipe, rows, files.train);
  if (!columns) columns = data::columns_of(*table, rows);
  TaskData parts = task_of(*columns);
  parts.train = data::table_source(table, std::move(rows), *columns);
  if (!evaluated) return parts;
  auto held = table;
  if (!files.validation.empty()) {
    how.features = names_of(columns->features);
    held = std::make_shared<const data::Table>(data::read_table(files.validation, how));
    others = all_rows(*held);
  }
  parts.validation = data::table_source(held, std::move(others), *columns);
  return parts;
}
}  // namespace

DataEntry csv_format() {
  using enum KeyType;
  return {.name = "csv",
          .doc = "rows of numbers with named columns, of which some are predicted",
          .read = read_csv,
          .reads = {keys::data::path, keys::data::val_path, keys::data::val_split},
          .keys = {{target_key, texts, "[]", "", 0, 0,
                    "csv: columns that are predicted: numbers, or one class with task "
                    "classification"},
                   {features_key, texts, "[]", "", 0, 0,
                    "csv: columns that are inputs, numbers; []: all that are not data.target"},
                   {separator_key, text, "','", "", 0, 0,
                    "csv: character between the fields of a line, such as ';'"}},
          .unit = "rows",
          .files = {columns_file}};
}

}  // namespace weft::train
