// Fuzzes UTF-8 text and vocabularies in JSON: accepted ones must survive a round trip.
#include "tests/fuzz/fuzz.h"
#include "weft/io/text.h"

using namespace weft;

namespace {
const std::string valid[] = {"some text, \xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80",
                             R"({"type":"bytes"})",
                             R"({"type":"characters","characters":["\n","a","\u00e9"]})"};
}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  return fuzz::mutate(valid, data, size, max_size, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string text(reinterpret_cast<const char*>(data), size);
  fuzz::expect_value_or_error(ErrorKind::data, [&] {
    auto vocabulary = io::Vocabulary::from_json(text, "input");
    if (!(io::Vocabulary::from_json(vocabulary.to_json(), "again") == vocabulary)) std::abort();
  });
  fuzz::expect_value_or_error(ErrorKind::data, [&] {
    auto vocabulary = io::Vocabulary::characters(text);
    if (vocabulary.decode(vocabulary.encode(text)) != text) std::abort();
    if (!(io::Vocabulary::from_json(vocabulary.to_json(), "again") == vocabulary)) std::abort();
  });
  return 0;
}
