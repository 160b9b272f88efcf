// Tests instruction data against what transformers' chat templates and tokenizers give.
#include "weft/data/instructions.h"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/support/captured.h"
#include "tests/support/published_model.h"
#include "tests/support/temporary_folder.h"
#include "weft/data/chat_template/tokenizer_config.h"
#include "weft/io/files.h"
#include "weft/io/json.h"

using namespace weft;
using namespace weft::data;
using doctest::Contains;

namespace {
// InstructionFiles have a tokenizer of bytes, whose template writes "ROLE: CONTENT\n", and whose id
// 1 ends a text.
struct InstructionFiles : test::TemporaryFolder {
  Tokenizer tokenizer = Tokenizer::load((test::write_published(file("model")), file("model")));
  InstructionOptions options = {
      .chat = ChatTemplate("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
                           "{% if add_generation_prompt %}assistant: {% endif %}",
                           {}, "chat"),
      .end = 1};
  std::vector<Instruction> read(std::string_view text) const {
    return read_instructions(file("data.jsonl", text), tokenizer, options);
  }
  // Returns the text of the tokens that are learned, or of those that are not.
  std::string text(const Instruction& sample, bool learned) const {
    std::vector<int32_t> ids;
    for (size_t i = 0; i < sample.tokens.size(); ++i)
      if (sample.learned[i] == learned && sample.tokens[i] != 1) ids.push_back(sample.tokens[i]);
    return tokenizer.decode(ids);
  }
};
}  // namespace

TEST_CASE("each kind of sample learns its answers alone") {
  const InstructionFiles place;
  const std::vector<Instruction> samples = place.read(
      "{\"text\": \"All of it.\"}\n\n"
      "{\"prompt\": \"One and one is\", \"completion\": \" two.\"}\r\n"
      "{\"messages\": [{\"role\": \"system\", \"content\": \"Be brief.\"},"
      "{\"role\": \"user\", \"content\": \"Hi\"},"
      "{\"role\": \"assistant\", \"content\": \"Hello\"},"
      "{\"role\": \"user\", \"content\": \"Bye\"},"
      "{\"role\": \"assistant\", \"content\": \"See you\"}]}");
  REQUIRE(samples.size() == 3);
  CHECK(place.text(samples[0], true) == "All of it.");
  CHECK(place.text(samples[0], false).empty());
  CHECK(samples[0].tokens.back() == 1);
  CHECK(samples[0].learned.back());
  CHECK(place.text(samples[1], false) == "One and one is");
  CHECK(place.text(samples[1], true) == " two.");
  CHECK(place.text(samples[2], false) ==
        "system: Be brief.\nuser: Hi\nassistant: user: Bye\nassistant: ");
  CHECK(place.text(samples[2], true) == "Hello\nSee you\n");
}

TEST_CASE("a prompt and its completion have the tokens of their whole text") {
  for (const nlohmann::json& row :
       io::parse_json(io::read_file("tests/reference/instructions.json", 1 << 20))) {
    CAPTURE(row.dump());
    const std::string name = row.at("tokenizer");
    const Tokenizer tokenizer = Tokenizer::load("tests/reference/tokenizers/" + name + ".json");
    const nlohmann::json line{{"prompt", row.at("prompt")}, {"completion", row.at("completion")}};
    const Instruction sample = parse_instructions(line.dump(), "line", tokenizer)[0];
    auto ids = row.at("ids").get<std::vector<int32_t>>();
    auto learned = row.at("learned").get<std::vector<int>>();
    const std::vector<int32_t> around = tokenizer.encode("");  // special tokens before and after
    const auto before = static_cast<std::ptrdiff_t>(sample.tokens.size() - ids.size());
    CHECK(before == std::ssize(around));
    CHECK(std::equal(ids.begin(), ids.end(), sample.tokens.begin() + before));
    CHECK(std::equal(learned.begin(), learned.end(), sample.learned.begin() + before));
  }
}

TEST_CASE("a completion is found in a text that its tokenizer rewrites") {
  const Tokenizer lower = Tokenizer::load("tests/reference/tokenizers/bert.json");
  const Instruction sample =
      parse_instructions(R"({"prompt": "The LOOM", "completion": " Weaves"})", "line", lower)[0];
  const auto is_learned = std::ranges::find(sample.learned, true) - sample.learned.begin();
  const std::vector<int32_t> prompt = lower.encode("the loom");  // with the tokens around a text
  CHECK(is_learned == std::ssize(prompt) - 1);
  CHECK(std::equal(prompt.begin(), prompt.end() - 1, sample.tokens.begin()));
}

TEST_CASE("an empty completion is its end, whatever the prompt ends with") {
  const InstructionFiles place;
  const std::vector<Instruction> samples = place.read(R"({"prompt": "a</s>", "completion": ""})");
  REQUIRE(samples[0].tokens.size() == 3);
  CHECK(samples[0].tokens[1] == 1);
  CHECK(samples[0].learned == std::vector<bool>{false, false, true});
}

TEST_CASE("samples are rows of inputs and of the labels that are learned") {
  const InstructionFiles place;
  std::vector<Instruction> samples = place.read(
      "{\"prompt\": \"abc\", \"completion\": \"de\"}\n"
      "{\"prompt\": \"a long prompt\", \"completion\": \"x\"}\n"
      "{\"prompt\": \"ab\", \"completion\": \"a long completion\"}");
  const std::vector<Instruction> whole = samples;
  const test::Captured errors(2);
  const auto source = instruction_source(std::move(samples), 8, "data.jsonl");
  CHECK(errors.text().find("of 3 samples 2 are longer than data.seq_len, 8, and cut; 1 have") !=
        std::string::npos);
  REQUIRE(source->size() == 2);
  CHECK(source->input_type() == Type{DType::i64, {8}});
  std::vector<int64_t> inputs(8), labels(8);
  source->write({.index = 0}, reinterpret_cast<std::byte*>(inputs.data()), labels.data());
  const std::vector<int32_t>& first = whole[0].tokens;  // a b c d e end
  REQUIRE(first.size() == 6);
  CHECK(inputs == std::vector<int64_t>{first[0], first[1], first[2], first[3], first[4], 0, 0, 0});
  CHECK(labels == std::vector<int64_t>{-100, -100, first[3], first[4], 1, -100, -100, -100});
  source->write({.index = 1}, reinterpret_cast<std::byte*>(inputs.data()), labels.data());
  const std::vector<int32_t>& last = whole[2].tokens;
  CHECK(labels[0] == -100);
  for (size_t i = 1; i < 8; ++i) CHECK(labels[i] == last[i + 1]);
  CHECK(instruction_source(whole, 8, "a")->fingerprint() == source->fingerprint());
  CHECK(instruction_source(whole, 7, "a")->fingerprint() != source->fingerprint());
}

TEST_CASE("packed rows hold as many samples as fit, with their positions") {
  const InstructionFiles place;
  std::vector<Instruction> samples = place.read(
      "{\"prompt\": \"ab\", \"completion\": \"c\"}\n"
      "{\"prompt\": \"abcde\", \"completion\": \"\"}\n"
      "{\"prompt\": \"a\", \"completion\": \"b\"}\n"
      "{\"prompt\": \"abcdef\", \"completion\": \"gh\"}");
  const std::vector<Instruction> whole = samples;
  const auto source = instruction_source(std::move(samples), 8, "data.jsonl", true);
  REQUIRE(source->size() == 3);  // of 8 tokens, of 5 and 3, and of 2
  CHECK(source->input_type() == Type{DType::i64, {2, 8}});
  std::vector<int64_t> inputs(16), labels(8), seen;
  for (int64_t row = 0; row < 3; ++row) {
    source->write({.index = row}, reinterpret_cast<std::byte*>(inputs.data()), labels.data());
    for (size_t i = 0; i < 8; ++i) {
      const int64_t place_of = inputs[8 + i];
      CHECK((place_of == 0 || (i > 0 && place_of == inputs[8 + i - 1] + 1)));
      if (labels[i] != -100) seen.push_back(labels[i]);
    }
  }
  std::vector<int64_t> learned;
  for (const size_t i : {3, 1, 0, 2})
    for (size_t t = 1; t < whole[i].tokens.size(); ++t)
      if (whole[i].learned[t]) learned.push_back(whole[i].tokens[t]);
  CHECK(seen == learned);
  CHECK(instruction_source(whole, 8, "a")->fingerprint() != source->fingerprint());
}

TEST_CASE("lines that are no samples are refused by their number") {
  const InstructionFiles place;
  auto check_refused = [&](const std::string& line, const char* message) {
    CAPTURE(line);
    CHECK_THROWS_WITH_AS(place.read("{\"text\": \"x\"}\n\n" + line), Contains(message), Error);
    CHECK_THROWS_WITH_AS(place.read("{\"text\": \"x\"}\n\n" + line), Contains("data.jsonl:3: "),
                         Error);
  };
  check_refused("{\"text\": ", "column");
  check_refused("[1]", "a sample must be an object");
  check_refused("{\"question\": \"x\"}", "a sample has text, prompt and completion, or messages");
  check_refused("{\"text\": 3}", "text must be text. Got 3.");
  check_refused("{\"prompt\": \"x\"}", "completion");
  check_refused("{\"messages\": []}", "messages have no answer");
  check_refused("{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}]}",
                "messages have no answer");
  check_refused("{\"messages\": [{\"role\": \"assistant\"}]}", "content");
  check_refused("{\"messages\": 3}", "messages must be a list");
  InstructionFiles other;
  other.options.chat = TokenizerConfig::load(other.file("model")).chat_template();
  const std::string conversation =  // this template asks for an answer behind every message

      R"({"messages": [{"role": "assistant", "content": "a"}, {"role": "user", "content": "u"}, )"
      R"({"role": "assistant", "content": "b"}]})";
  CHECK_THROWS_WITH_AS(other.read(conversation), Contains("changes what was said"), Error);
  other.options.chat.reset();
  CHECK_THROWS_WITH_AS(other.read(conversation), Contains("messages need a chat template"), Error);
  const std::vector<Instruction> none;
  CHECK_THROWS_WITH_AS(instruction_source(none, 8, "data.jsonl"),
                       "data.jsonl has no sample to learn from.", Error);
}
