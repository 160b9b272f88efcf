// Fuzzes CSV tables: of numbers where the first byte is even, else of classes.
#include <numeric>

#include "tests/fuzz/fuzz.h"
#include "weft/data/table.h"

using namespace weft;

namespace {
const std::string valid[] = {"0a,y\n1,2\n3e1,-4.5\n", "0\xEF\xBB\xBFy;a\r\n\"1\";2\r\n\r\n3;4",
                             "1a,y\n1,cat\n2,\"d\"\"o\ng\"\n"};

void expect_samples(const data::Table& table) {
  std::vector<int64_t> rows(static_cast<size_t>(table.rows()));
  std::iota(rows.begin(), rows.end(), 0);
  const data::TableColumns columns = data::columns_of(table, rows);
  if (!(data::TableColumns::from_json(columns.to_json(), "columns") == columns)) std::abort();
  const auto source = data::table_source(std::make_shared<data::Table>(table), rows, columns);
  std::vector<float> input(table.features.size()), targets(table.targets.size());
  for (int64_t i = 0; i < source->size(); ++i) {
    auto* bytes = reinterpret_cast<std::byte*>(input.data());
    int64_t label = -1;
    if (source->label_dtype() == DType::f32)
      source->write_targets({.index = i}, bytes, targets.data());
    else
      source->write({.index = i}, bytes, &label);
    if (source->label_dtype() == DType::i64 && label < 0) std::abort();
  }
}
}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  return fuzz::mutate(valid, data, size, max_size, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto copy = fuzz::exact_copy(data + 1, size - 1);
  const std::string_view text(reinterpret_cast<const char*>(copy->data), copy->bytes);
  const bool classes = (data[0] & 1) != 0;
  for (const char separator : {',', ';'})
    fuzz::expect_value_or_error(ErrorKind::data, [&] {
      expect_samples(data::parse_table(
          text, "input", {.targets = {"y"}, .classes = classes, .separator = separator}));
    });
  return 0;
}
