// Fuzzes the files from before tokenizer.json: GPT-2's vocab.json and merges.txt, BERT's vocab.txt
// and tokenizer_config.json. The input is the first file, a byte 0, and the second.
#include "tests/fuzz/fuzz.h"
#include "weft/data/tokenizer/older_files.h"
#include "weft/data/tokenizer/tokenizer.h"

using namespace weft;
using namespace weft::data::tokenizer;
using namespace std::string_literals;

namespace {
const std::string valid[] = {
    R"({"a":0,"b":1,"ab":2,"<|endoftext|>":3})"s + '\0' + "#version: 0.2\na b\n",
    "[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n##b\n"s + '\0' +
        R"({"do_lower_case":false,"strip_accents":null,"tokenize_chinese_chars":true})"};

void use(const std::string& json) {
  const auto tokenizer = data::Tokenizer::from_json(json, "input");
  tokenizer.decode(tokenizer.encode("ab [MASK]<|endoftext|>"));
}
}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  return fuzz::mutate(valid, data, size, max_size, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const size_t end = std::min(text.find('\0'), size);
  const std::string first = text.substr(0, end), second = text.substr(std::min(end + 1, size));
  const std::string first_name = "first", second_name = "second";
  fuzz::expect_value_or_error(ErrorKind::data, [&] {
    const Document vocabulary(first, first_name);
    use(json_of_gpt2(vocabulary.root(), first, {second, second_name}));
  });
  fuzz::expect_value_or_error(
      ErrorKind::data, [&] { use(json_of_bert({first, first_name}, {second, second_name})); });
  return 0;
}
