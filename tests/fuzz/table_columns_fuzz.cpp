// Fuzzes the columns of a table, which checkpoints keep.
#include "tests/fuzz/fuzz.h"
#include "weft/data/table.h"

using namespace weft;

namespace {
const std::string valid[] = {
    R"({"features":[{"name":"a","mean":0.5,"std":2}],"targets":[{"name":"y","mean":1,"std":3}],)"
    R"("classes":["cat","dog"]})"};
}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  return fuzz::mutate(valid, data, size, max_size, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  fuzz::expect_value_or_error(ErrorKind::data, [&] {
    const data::TableColumns columns = data::TableColumns::from_json(text, "input");
    if (!(data::TableColumns::from_json(columns.to_json(), "input") == columns)) std::abort();
  });
  return 0;
}
