// Fuzzes the JSON lines of instruction data.
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/small_tokenizer.h"
#include "weft/data/instructions.h"

using namespace weft;

namespace {
const std::string valid[] = {
    "{\"text\": \"et te\"}\n\n{\"prompt\": \"t\", \"completion\": \"e\"}\r\n",
    "{\"messages\": [{\"role\": \"user\", \"content\": \"t\"},"
    "{\"role\": \"assistant\", \"content\": \"e\"}]}\n",
    R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "t"}], "weight": 1},)"
    R"({"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "t"}}]},)"
    R"({"role": "tool", "content": {"e": 1}}, {"role": "assistant", "content": "e", "train": true,)"
    R"("reasoning_content": "te"}], "tools": "[{\"name\": \"t\"}]", "more": 2, "weight": 1.0,)"
    R"("chat_template_kwargs": {"k": [null]}, "documents": [{"text": "e"}]})",
    R"({"conversations": [{"from": "human", "value": "t"}, {"from": "function_call", "value":)"
    R"("{\"name\": \"t\"}"}, {"from": "gpt", "value": "e"}], "system": "te"})",
    R"({"instruction": "t", "input": "e", "output": "te", "history": [["t", "e"]]})"
    "\n"
    R"({"prompt": [{"role": "user", "content": "t"}],)"
    R"("completion": [{"role": "assistant", "content": "e"}]})"};

data::InstructionOptions options_with(const char* text) {
  return {.chat = data::ChatTemplate(text, {}, "chat"), .end = 0};
}
// Each input is read with a template that only adds, one that rewrites what was said, and one that
// marks answers and reads all of a row.
const data::InstructionOptions* options() {
  static const data::InstructionOptions made[] = {
      options_with("{% for m in messages %}{{ m.role }}{{ m.content }}{% endfor %}"
                   "{% if add_generation_prompt %}assistant{% endif %}"),
      options_with("{% for m in messages %}{{ m.content }}{% if loop.last %}{{ m.thinking }}"
                   "{% else %}e{% endif %}{% endfor %}{% if add_generation_prompt %}tt{% endif %}"),
      options_with("{{ tools }}{{ more }}{{ documents }}{% for m in messages %}{% generation %}"
                   "{{ m|tojson }}{% endgeneration %}e{% endfor %}")};
  return made;
}
}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  return fuzz::mutate(valid, data, size, max_size, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const data::InstructionOptions* with = options(); with != options() + 3; ++with)
    fuzz::expect_value_or_error({ErrorKind::data, ErrorKind::usage}, [&] {
      for (const data::Instruction& sample :
           data::parse_instructions(text, "input", fuzz::small_tokenizer(), *with))
        if (sample.tokens.size() != sample.learned.size()) std::abort();
    });
  return 0;
}
