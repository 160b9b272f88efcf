// Fuzzes the JSON lines of instruction data.
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/small_tokenizer.h"
#include "weft/data/instructions.h"

using namespace weft;

namespace {
const std::string valid[] = {
    "{\"text\": \"et te\"}\n\n{\"prompt\": \"t\", \"completion\": \"e\"}\r\n",
    "{\"messages\": [{\"role\": \"user\", \"content\": \"t\"},"
    "{\"role\": \"assistant\", \"content\": \"e\"}]}\n"};

const data::InstructionOptions& options() {
  static const data::InstructionOptions made = {
      .chat = data::ChatTemplate("{% for m in messages %}{{ m.role }}{{ m.content }}{% endfor %}"
                                 "{% if add_generation_prompt %}assistant{% endif %}",
                                 {}, "chat"),
      .end = 0};
  return made;
}
}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  return fuzz::mutate(valid, data, size, max_size, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  fuzz::expect_value_or_error(ErrorKind::data, [&] {
    for (const data::Instruction& sample :
         data::parse_instructions(text, "input", fuzz::small_tokenizer(), options()))
      if (sample.tokens.size() != sample.learned.size()) std::abort();
  });
  return 0;
}
