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

TEST_CASE("conversations have the tokens of transformers, and learn what it marks") {
  const Tokenizer tokenizer = Tokenizer::load("tests/reference/tokenizers/llama3.json");
  const auto read = [](const char* file) {
    return nlohmann::ordered_json::parse(io::read_file(file, 1 << 20));
  };
  const nlohmann::ordered_json reference = read("tests/reference/answers.json"),
                               usual = read("tests/reference/chat.json").at("templates");
  for (const auto& one : reference.at("cases")) {
    const std::string name = one.at("template"), row = io::json_text(one.at("row"));
    CAPTURE(name);
    CAPTURE(row);
    const auto& own = reference.at("templates");
    const std::string text = own.contains(name) ? own.at(name) : usual.at(name);
    const InstructionOptions options{
        .chat = ChatTemplate(
            text, {{"bos_token", "<|begin_of_text|>"}, {"eos_token", "<|endoftext|>"}}, name)};
    const std::vector<Instruction> samples = parse_instructions(row, "row", tokenizer, options);
    const auto& expected = one.at("samples");
    REQUIRE(samples.size() == expected.size());
    for (size_t i = 0; i < samples.size(); ++i) {
      const auto learned = expected[i].at("learned").get<std::vector<int>>();
      CHECK(samples[i].tokens == expected[i].at("ids").get<std::vector<int32_t>>());
      CHECK(samples[i].learned == std::vector<bool>(learned.begin(), learned.end()));
    }
  }
}

TEST_CASE("of a conversation only the last answer is learned where that is the option") {
  InstructionFiles place;
  place.options.last_answer = true;
  const std::vector<Instruction> samples = place.read(
      R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "A"},)"
      R"({"role": "user", "content": "Bye"}, {"role": "assistant", "content": "B"}]})"
      "\n"
      R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "A"},)"
      R"({"role": "assistant", "content": "B", "weight": 0}]})");
  REQUIRE(samples.size() == 2);
  CHECK(place.text(samples[0], false) == "user: Hi\nassistant: A\nuser: Bye\nassistant: ");
  CHECK(place.text(samples[0], true) == "B\n");
  CHECK(place.text(samples[1], true) == "A\n");
}

// transformers renders the whole conversation and takes the marks of that text.
TEST_CASE("a template that marks the last answer alone has it alone learned") {
  InstructionFiles place;
  place.options.chat = ChatTemplate(
      "{% for m in messages %}{{ m.role }}: {% if m.role == 'assistant' and loop.last %}"
      "{% generation %}{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}"
      "{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}",
      {}, "chat");
  const std::vector<Instruction> samples =
      place.read(R"({"messages": [{"role": "user", "content": "Hi", "weight": 1}, )"
                 R"({"role": "assistant", "content": "A"}, {"role": "user", "content": "Bye"}, )"
                 R"({"role": "assistant", "content": "B"}]})");
  REQUIRE(samples.size() == 1);
  CHECK(place.text(samples[0], true) == "user: HiB");
  CHECK(place.text(samples[0], false) == "assistant: Auser: Byeassistant: ");
}

TEST_CASE("a weight decides what is learned, of rows and of every role") {
  const InstructionFiles place;
  const std::vector<Instruction> samples =
      place.read(R"({"text": "all", "weight": 1})"
                 "\n"
                 R"({"text": "none", "weight": 0.0})"
                 "\n"
                 R"({"messages": [{"role": "user", "content": "Hi", "train": true}, )"
                 R"({"role": "assistant", "content": "A", "train": false}]})");
  REQUIRE(samples.size() == 3);
  CHECK(place.text(samples[0], true) == "all");
  CHECK(place.text(samples[1], true).empty());
  CHECK(place.text(samples[1], false) == "none");
  CHECK(place.text(samples[2], true) == "user: Hi\n");
}

TEST_CASE("rows of Alpaca without a chat template are in its own words") {
  InstructionFiles place;
  place.options.chat.reset();
  const std::vector<Instruction> samples =
      place.read(R"({"instruction": "Add.", "input": "2 and 2", "output": "4"})"
                 "\n"
                 R"({"instruction": "Greet.", "input": "", "output": "Hi"})");
  REQUIRE(samples.size() == 2);
  CHECK(place.text(samples[0], false) ==
        "Below is an instruction that describes a task, paired with an input that provides further "
        "context. Write a response that appropriately completes the request.\n\n### "
        "Instruction:\nAdd.\n\n### Input:\n2 and 2\n\n### Response:\n");
  CHECK(place.text(samples[0], true) == "4");
  CHECK(place.text(samples[1], false) ==
        "Below is an instruction that describes a task. Write a response that appropriately "
        "completes the request.\n\n### Instruction:\nGreet.\n\n### Response:\n");
}

TEST_CASE("rows of published tables have columns beside their form") {
  const InstructionFiles place;
  const test::Captured said(2);
  const std::vector<Instruction> samples = place.read(
      R"({"instruction": "Add.", "input": "", "output": "4", "text": "### Add.\n### Response:\n4"})"
      "\n"
      R"({"prompt": "Hi", "prompt_id": "ab", "messages": [{"role": "user", "content": "Hi"}, )"
      R"({"role": "assistant", "content": "A"}], "text": ""})"
      "\n"
      R"({"conversations": [{"from": "human", "value": "Hi"}, {"from": "bard", "value": "B"}]})"
      "\n"
      R"({"text": "", "prompt": "Hi", "completion": ""})");
  REQUIRE(samples.size() == 4);
  CHECK(place.text(samples[0], false) == "user: Add.\nassistant: ");
  CHECK(place.text(samples[0], true) == "4\n");
  CHECK(place.text(samples[1], true) == "A\n");
  CHECK(place.text(samples[2], true) == "B\n");
  CHECK(place.text(samples[3], false) == "Hi");
  CHECK(said.text().find("text is left out, 1 times") != std::string::npos);
  CHECK(said.text().find("prompt is left out, 1 times") != std::string::npos);
}

TEST_CASE("keys that nothing reads are said once for each file") {
  const InstructionFiles place;
  const test::Captured errors(2);
  place.read(
      R"({"id": 3, "messages": [{"role": "user", "content": "Hi", "name": "Ada"}, )"
      R"({"role": "assistant", "content": "A", "reasoning_content": "why", "tool_calls": []}]})"
      "\n"
      R"({"messages": [{"role": "user", "content": "Hi", "name": "Bo", "id": null}, )"
      R"({"role": "assistant", "content": "A"}], "tools": [{"name": "f"}], )"
      R"("serial": 18446744073709551616})"
      "\n"
      R"({"text": "x", "source": "y"})");
  const std::string text = errors.text();
  CAPTURE(text);
  for (const char* said :
       {"id is left out, 1 times", "name of user messages is left out, 2 times",
        "reasoning_content of assistant messages is left out, 1 times",
        "tools is left out, 1 times", "source is left out, 1 times", "serial is left out, 1 times"})
    CHECK(text.find(said) != std::string::npos);
  CHECK(std::ranges::count(text, '\n') == 6);
}

TEST_CASE("keys within calls that nothing reads are said, too") {
  InstructionFiles place;
  place.options.chat = ChatTemplate(
      "{% for m in messages %}{{ m.role }}: {{ m.content }}"
      "{% for c in m.tool_calls or [] %}<{{ c.function.name }}>{% endfor %}\n{% endfor %}",
      {}, "chat");
  const std::string call = R"({"type": "function", "function": {"name": "f", "arguments": )";
  const test::Captured errors(2);
  place.read(R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", )"
             R"("content": "A", "tool_calls": [)" +
             call + R"({"a": 1}}}, )" + call + "{}}}]}]}");
  CHECK(errors.text() ==
        "weft: warning: [data] " + place.file("data.jsonl") +
            ": tool_calls.function.arguments of assistant messages is left out, 1 times: the chat "
            "template does not read it.\n");
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

TEST_CASE("integers beyond 64 bits are refused where a template reads them, and else left out") {
  InstructionFiles place;
  const std::string answer = R"({"role": "assistant", "content": "18446744073709551616"})";
  const auto learned = [&](const std::string& row) { return place.text(place.read(row)[0], true); };
  CHECK(learned(R"({"messages": [)" + answer + R"(], "n": 1.8446744073709551616e19, )" +
                R"("least": -9223372036854775808, "id": 18446744073709551616})") ==
        "18446744073709551616\n");
  CHECK(learned(R"({"text": "\"x", "id": 123456789012345678901234567890})") == "\"x");
  place.options.chat = ChatTemplate(  // "id" is within a word, and `brief` beside a long integer
      "{% for m in messages %}{{ m.content if brief else 'provided' }}{% endfor %}", {}, "chat");
  CHECK(learned(R"({"messages": [)" + answer + R"(], "id": 99999999999999999999, )" +
                R"("chat_template_kwargs": {"brief": true, "session": 99999999999999999999}})") ==
        "18446744073709551616");
  place.options.chat = ChatTemplate(
      "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}"
      "{{ c.function.arguments }}{% endfor %}{% endfor %}",
      {}, "chat");
  const auto called = [](const std::string& number) {
    return R"({"messages": [{"role": "assistant", "content": "a", "id": -99999999999999999999, )"
           R"("tool_calls": [{"function": {"name": "f", "arguments": {"x": )" +
           number + "}}}]}]}";
  };
  CHECK(learned(called("9223372036854775807")) == "a{'x': 9223372036854775807}");
  CHECK(learned(called("1e19")) == "a{'x': 1e+19}");
  for (const char* number : {"9223372036854775808", "18446744073709551616", "-9223372036854775809"})
    CHECK_THROWS_WITH_AS(
        learned(called(number)),
        Contains((std::string("data.jsonl:1: [chat_template] chat: the conversation cannot be "
                              "read: ") +
                  number + " is no integer from -9223372036854775808 to 9223372036854775807.")
                     .c_str()),
        Error);
}

TEST_CASE("a message behind what the template rewrites is learned from its beginning") {
  InstructionFiles place;
  // Thoughts are left out of earlier answers, as by Qwen 3, or answers of users are put behind.
  place.options.chat = ChatTemplate(
      "{% for m in messages %}[{{ m.role }}]{% if m.role == 'assistant' and loop.last %}<think>"
      "{% endif %}{% if m.role == 'user' and not loop.last %}(old) {% endif %}{{ m.content }};"
      "{% endfor %}{% if add_generation_prompt %}[assistant]<think>{% endif %}",
      {}, "chat");
  const auto conversation = [](const std::string& user) {
    return R"({"messages": [{"role": "user", "content": "a question that is long enough"}, )"
           R"({"role": "assistant", "content": "SECRET", "weight": 0}, )" +
           user + R"(, {"role": "assistant", "content": "y", "weight": 0}]})";
  };
  CHECK(place.text(place.read(conversation(R"({"role": "user", "content": "q", "weight": 1})"))[0],
                   true) == "[user]q;");
  // A mark that only ends a text, as Phi-3 writes it, is none of the next message.
  place.options.chat = ChatTemplate(
      "{% for m in messages %}[{{ m.role }}]{{ m.content }};{% endfor %}"
      "{{ '[assistant]' if add_generation_prompt else '<end>' }}",
      {}, "chat");
  CHECK(place.text(place.read(conversation(R"({"role": "user", "content": "q", "weight": 1})"))[0],
                   true) == "[user]q;<end>");
  // What replaces a whole thought cannot be told from the message.
  place.options.chat = ChatTemplate(
      "{% for m in messages %}[{{ m.role }}]{{ m.content if loop.last else '...' }}"
      "{{ '<return>' if loop.last else '<end>' }}{% endfor %}",
      {}, "chat");
  CHECK_THROWS_WITH_AS(
      place.read(R"({"messages": [{"role": "user", "content": "a question that is long"}, )"
                 R"({"role": "user", "content": "q", "weight": 1}, )"
                 R"({"role": "assistant", "content": "y", "weight": 0}]})"),
      Contains("so that its beginning is unknown"), Error);
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
  const auto answer = [](const std::string& more) {
    return R"({"messages": [{"role": "user", "content": "u"}, {"role": "assistant", )" + more +
           "}]}";
  };
  check_refused(answer(R"("content": "a", "weight": 0.5)"), "messages[1].weight must be 0 or 1");
  check_refused(answer(R"("content": "a", "train": 1)"), "train must be true or false. Got 1.");
  check_refused(answer(R"("content": "a", "weight": 1, "train": true)"), "Give one.");
  check_refused(answer(R"("content": 3)"), "content must be text or a list of parts. Got 3.");
  check_refused(answer(R"("content": [{"type": "image", "url": "x"}])"),
                "has a part of type image");
  check_refused(answer(R"("content": [{"type": "file", "file_id": "x"}])"),
                "has a part of type file, which the chat template does not read");
  check_refused(answer(R"("content": ["a"])"), "which are objects");
  check_refused(answer(R"("tool_calls": "[{]")"), "messages[1].tool_calls: not JSON: ");
  check_refused(answer(R"("from": "gpt", "value": "a")"), "messages[1] has two forms");
  check_refused(R"({"messages": ["a"]})", "messages[0] must be an object. Got \"a\".");
  check_refused(R"({"conversations": [{"from": "human", "value": "u"}, {"role": "assistant", )"
                R"("content": "a"}]})",
                "conversations mixes two forms");
  check_refused(R"({"conversations": [{"from": "function_call", "value": "f x"}]})", "not JSON");
  check_refused(R"({"conversations": [{"from": "bot", "value": "x"}]})",
                "conversations[0].from: there is no role \"bot\"");
  check_refused(R"({"conversations": [{"from": "function_call", "value": "{\"arguments\": 1}"}]})",
                "conversations[0].value.name is missing");
  check_refused(answer(R"("tool_calls": [{"type": "function", "function": {"name": ""}}])"),
                "messages[1].tool_calls[0].function.name is empty");
  check_refused(answer(R"("tool_calls": [{"id": "1"}])"),
                "messages[1].tool_calls[0].name is missing");
  check_refused(R"({"prompt": "x", "completion": [{"role": "assistant", "content": "a"}]})",
                "must both be text, or both lists of messages");
  check_refused(R"({"instruction": "x", "output": "y", "history": [["a"]]})", "pairs of texts");
  check_refused(R"({"text": "x", "weight": "1"})", "weight must be 0 or 1");
  check_refused(R"({"messages": [], "tools": {"f": 1}})", "tools must be a list. Got {");
  check_refused(R"({"messages": [], "chat_template_kwargs": {"tools": []}})",
                "chat_template_kwargs has tools");
  InstructionFiles other;
  const std::string conversation =
      R"({"messages": [{"role": "assistant", "content": "a"}, {"role": "user", "content": "u"}, )"
      R"({"role": "assistant", "content": "b"}]})";
  other.options.chat.reset();
  CHECK_THROWS_WITH_AS(other.read(conversation), Contains("messages need a chat template"), Error);
  const std::vector<Instruction> none;
  CHECK_THROWS_WITH_AS(instruction_source(none, 8, "data.jsonl"),
                       "data.jsonl has no sample to learn from.", Error);
}
