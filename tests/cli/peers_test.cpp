// Tests that what weft writes has the same logits in llama.cpp (GGUF files) and in PEFT (adapters).
// They run if PEERS_PYTHON names a Python with the package.
#include "tests/support/peers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/models/families.h"
#include "tests/support/program.h"
#include "tests/support/published_model.h"
#include "weft/infer/token_model.h"
#include "weft/models/adapter.h"

using namespace weft;
using namespace weft::testing;
using weft::test::Outcome;

namespace {
using Rows = std::vector<std::vector<int32_t>>;
using Numbers = std::vector<double>;

// A FamilyNet is the folder of a family's net, "model", and rows of tokens, "tokens.json".
struct FamilyNet : test::Workplace {
  Rows rows;

  explicit FamilyNet(const std::string& family) {
    const Json reference = family_reference(family);
    test::write_published(path("model"), {.ids = 96, .vocabulary = 96});  // for its tokenizer
    write("model/config.json", reference.at("published_config").dump());
    write_weights(reference, path("model/model.safetensors"));
    for (const Json& row : reference.at("tokens")) rows.emplace_back(row.begin(), row.end());
    shorten(12);
  }
  void shorten(size_t length) {
    for (std::vector<int32_t>& row : rows) row.resize(length);
    write("tokens.json", Json(rows).dump());
  }
  void run(const std::vector<std::string>& arguments) const {
    const Outcome outcome = weft(arguments);
    REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  }
  // Returns the lines of JSON that a script prints.
  std::vector<Json> lines_of(const std::string& command) const {
    const int status =
        std::system(fmt::format("{} >'{}' 2>'{}'", command, path("said"), path("errors")).c_str());
    REQUIRE_MESSAGE(status == 0, read("errors"));
    std::ifstream said(path("said"));
    std::vector<Json> lines;
    for (std::string line; std::getline(said, line);) lines.push_back(Json::parse(line));
    return lines;
  }
};

Numbers flattened(const Json& nested) {
  if (!nested.is_array()) return {nested.get<double>()};
  Numbers numbers;
  for (const Json& part : nested) {
    const Numbers more = flattened(part);
    numbers.insert(numbers.end(), more.begin(), more.end());
  }
  return numbers;
}

// Returns the logarithms of the next token's probabilities after each token, from a cache.
Numbers log_probabilities(const std::string& model, const Rows& rows) {
  const models::Pretrained net = models::load_pretrained(model);
  const auto tokens =
      infer::make_token_model(*net.model, net.vocabulary, net.context, {.device = "cpu"});
  Numbers all;
  for (const std::vector<int32_t>& row : rows)
    for (size_t t = 0; t < row.size(); ++t) {
      tokens->append(
          std::array{infer::RowTokens{std::span(row).subspan(t, 1), t == 0 ? 0 : INT64_MAX}});
      const std::span<const float> logits = tokens->logits(0);
      double sum = 0;
      for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
      for (const float logit : logits) all.push_back(logit - std::log(sum));
    }
  return all;
}

// Returns the root mean square of differences.
double rms_difference(const Numbers& a, const Numbers& b) {
  REQUIRE(a.size() == b.size());
  double squares = 0;
  for (size_t i = 0; i < a.size(); ++i) squares += std::pow(a[i] - b[i], 2);
  return std::sqrt(squares / static_cast<double>(a.size()));
}
}  // namespace

TEST_SUITE("slow llama.cpp") {
  TEST_CASE("GGUF files load in llama.cpp, whose probabilities are weft's within its own spread") {
    const std::string python = python_with("llama_cpp");
    if (python.empty()) return;
    size_t loaded = 0;
    for (const std::string& family : family_names()) {
      CAPTURE(family);
      FamilyNet net(family);
      // llama.cpp leaves out windows here, which weft warns of: no token is beyond them.
      if (family == "mistral" || family == "phi3") net.shorten(5);
      const Outcome written = net.weft({"convert", "model", "f32.gguf", "--to", "gguf"});
      if (written.code == 2) continue;  // tests/models/gguf_test.cpp lists what is refused
      REQUIRE_MESSAGE(written.code == 0, written.err);
      ++loaded;
      net.run({"convert", "model", "f16.gguf", "--to", "gguf", "--dtype", "f16"});
      net.run({"quantize", "model", "Q8_0.gguf", "--to", "Q8_0"});
      const std::vector<Json> lines =
          net.lines_of(fmt::format("{} tests/llama_cpp/log_probabilities.py '{}' '{}' '{}' '{}'",
                                   python, net.path("tokens.json"), net.path("f32.gguf"),
                                   net.path("f16.gguf"), net.path("Q8_0.gguf")));
      REQUIRE(lines.size() == 3);
      const Numbers f32 = flattened(lines[0]), f16 = flattened(lines[1]),
                    q8_0 = flattened(lines[2]);
      // llama.cpp reads GELU from a table of float16, and computes all else here in float32.
      const bool has_table = family.starts_with("gpt");
      const double off = rms_difference(log_probabilities(net.path("f32.gguf"), net.rows), f32);
      CHECK(off <= (has_table ? rms_difference(f16, f32) : 1e-5));
      CHECK(rms_difference(log_probabilities(net.path("Q8_0.gguf"), net.rows), q8_0) <=
            rms_difference(q8_0, f32));
    }
    CHECK(loaded == 17);
  }
}

TEST_SUITE("slow pytorch") {
  TEST_CASE("adapters that weft trained load in PEFT, with the same logits") {
    const std::string python = python_with("peft");
    if (python.empty()) return;
    for (const std::string family : {"llama", "llama_switches", "gpt2"})
      for (const bool dora : {false, true}) {
        CAPTURE(family);
        CAPTURE(dora);
        const FamilyNet net(family);
        std::string text;
        for (int i = 0; i < 30; ++i) text += fmt::format("A line of text, number {}.\n", i);
        net.write("text.txt", text);
        net.run({"train",
                 "--model.pretrained",
                 "model",
                 "--data.format",
                 "text",
                 "--data.path",
                 "text.txt",
                 "--data.seq_len",
                 "16",
                 "--batch",
                 "4",
                 "--steps",
                 "5",
                 "--lr",
                 "0.05",
                 "--name",
                 "run",
                 "--adapter.type",
                 "lora",
                 "--adapter.r",
                 "4",
                 "--adapter.use_dora",
                 dora ? "true" : "false"});
        const std::string adapter = net.path("runs/run/checkpoints/latest");
        const std::vector<Json> lines =
            net.lines_of(fmt::format("{} tests/pytorch/check_adapter.py '{}' '{}' '{}'", python,
                                     net.path("tokens.json"), net.path("model"), adapter));
        REQUIRE(lines.size() == 1);
        CHECK(lines[0].at("differ").empty());
        const auto logits = [&](const std::string& tuned_by) {
          const models::Pretrained model = models::load_pretrained(net.path("model"));
          if (!tuned_by.empty()) models::load_adapter(*model.model, tuned_by);
          auto forward = compile([&](Tensor x) { return (*model.model)(x); }, {.mode = Mode::eval});
          return forward(family_tokens(family_reference(family), 0, 12)).to_doubles();
        };
        const Numbers theirs = flattened(lines[0].at("logits"));
        CHECK(rms_difference(logits(adapter), theirs) <= 1e-4);
        CHECK(rms_difference(logits(""), theirs) > 0.1);
      }
  }
}
